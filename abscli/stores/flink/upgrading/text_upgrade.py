"""What `abs validate --for` says of a snapshot of Flink."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from abscli.stores.flink.upgrading.upgrade_rules import Rule, Verdict
from abscli.text.columns import columns, number, size, wrapped
from formats.version import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Why:
    """A rule that speaks against a state. path: the way to what it is about."""

    rule: Rule
    path: str


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """One state of one operator.

    state: None for state that has no name.
    rows, bytes: None where they are not counted.
    """

    operator: str
    state: str | None
    verdict: Verdict
    rows: int | None
    bytes: int | None
    reasons: tuple[Why, ...]


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """Whether a Flink restores a checkpoint, as `abscli.stores.base.Upgrade`.

    verdict: the worst of all states.
    upgrade: whether it is certainly another release than the one that wrote it.
    """

    store: str
    epoch: int
    target: str
    written_by: str
    verdict: Verdict
    states: tuple[StateVerdict, ...]
    upgrade: bool

    @property
    def restores(self) -> bool | None:
        """None: not known."""
        return None if self.verdict is Verdict.UNKNOWN else self.verdict is Verdict.RESTORES

    def text(self, width: int) -> str:
        return upgrade_text(self, width)

    def to_json(self) -> dict[str, Any]:
        return upgrade_json(self)


def upgrade_json(report: UpgradeReport) -> dict[str, Any]:
    """`abs.upgrade`."""
    return {
        "schema": "abs.upgrade", "version": FORMAT_VERSION, "format": "flink", "store": report.store,
        "epoch": report.epoch,
        "target": f"flink:{report.target}", "written_by": report.written_by, "verdict": report.verdict,
        "states": [
            {
                "operator": state.operator, "state": state.state, "verdict": state.verdict, "rows": state.rows,
                "bytes": state.bytes,
                "reasons": [
                    {
                        "rule": why.rule.name, "verdict": why.rule.verdict, "path": why.path, "reason": why.rule.reason,
                        "source": why.rule.source, "remedy": why.rule.remedy,
                    }
                    for why in state.reasons
                ],
            }
            for state in report.states
        ],
    }  # fmt: skip


_SENTENCES: Final = {
    Verdict.RESTORES: "restores all of it, if the job declares its state with the same classes.",
    Verdict.UNKNOWN: "may restore it: of some state it is not known.",
    Verdict.DOES_NOT: "does not restore it.",
}


def upgrade_text(report: UpgradeReport, width: int) -> str:
    """The verdict first, then every state, then why, each rule once with the ways to what it is about."""
    head = f"Checkpoint {report.epoch} of {report.store}, written by {report.written_by}"
    sections = [[*wrapped(head, width, "  ", ""), f"Flink {report.target} {_SENTENCES[report.verdict]}"]]
    counts = Counter(state.verdict for state in report.states)
    rows = [
        [state.operator, state.state or "?", state.verdict.value, number(state.rows), size(state.bytes)]
        for state in sorted(report.states, key=lambda state: -list(Verdict).index(state.verdict))
    ]
    sections.append(columns(["OPERATOR", "STATE", "VERDICT", "ROWS", "BYTES"], rows, "lllrr", width, ["BYTES", "ROWS"]))
    rules: dict[Rule, list[str]] = {}
    for state in report.states:
        for why in state.reasons:
            rules.setdefault(why.rule, []).append(f"{state.operator}, {state.state or '?'}: {why.path}")
    for rule, paths in rules.items():
        lines = wrapped(f"{rule.verdict}: {rule.reason} ({rule.source})", width, "  ", f"{rule.name}: ")
        lines += [line for path in dict.fromkeys(paths) for line in wrapped(path, width, "      ", "  - ")]
        sections.append([*lines, *wrapped(rule.remedy, width, "    ", "  ")])
    sections.append([", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]) or "no state"])
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"
