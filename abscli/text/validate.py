"""What `abs validate` shows: verdicts, and every finding with what it means and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from abscli.planner.ranges import Ranges
from abscli.planner.repeats import total
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.text.columns import columns, counted, marked, moment, not_shown, size, some, wrapped
from formats.storage import Storage
from formats.values import plain

VERSION = "1.0"
LOOKED_UP = 10_000
"""Files that nothing refers to of which the sizes are looked up."""
SAME = 20
"""Findings of one code and epoch that a table shows; json has them all."""
NAMED = 3
"""Files that nothing refers to that are named, of those in one place; json has them all."""
REPEATS = 4
"""Channels of an epoch that are named as those on which records can repeat; json has them all."""

SPARE = ("FINDINGS", "TRIGGERED (UTC)")
"""Columns that a narrow terminal does without."""

MEANING = {
    Code.MISSING_ACK: "the epoch lacks what this task held; it cannot be restored as it is",
    Code.MISSING_FILE: "a file that the epoch needs is gone; this part cannot be restored",
    Code.SIZE_MISMATCH: "the file was cut short or added to; this part cannot be restored",
    Code.DIGEST_MISMATCH: "the bytes are not those that were written; what they say cannot be trusted",
    Code.ROW_MISMATCH: "the file holds another number of rows than the task wrote",
    Code.UNREADABLE: "the file cannot be read as what it should be",
    Code.UNREFERENCED_FILE: "no epoch needs it; it takes space and does no harm",
    Code.UPLOAD_LEFT: "no epoch names it, and nobody will complete it; it takes space in the bucket and does no harm",
    Code.TRANSACTION_LEFT: "no epoch names it, and nobody will finish it; it holds its locks in the database",
    Code.SINK_PART_WAITING: "the job ended before it was written to its target; the next run writes it",
    Code.MISSING_LOG: "records that were on their way at the cut are lost to a restore",
    Code.LOG_MISMATCH: "two logs of one job contradict each other; which one is right is not known",
    Code.CONSERVATION: "the cut is not consistent: a restore would lose or repeat records",
    Code.POSITION_REGRESSED: "the source went back without a restore: records are in the state twice",
    Code.TOPOLOGY_MISSING: "without the job graph nothing says whose state this is",
    Code.MANIFEST_UNREADABLE: "what the epoch consists of is not known",
    Code.MISPLACED_KEY: "the task holds keys of another: their later records would miss this state",
    Code.SINK_PART_MISSING: "rows of the output are lost to its readers; going back before the epoch makes them again",
    Code.SINK_PART_UNNAMED: "a process that had lost the job showed it, or somebody put it there; readers see its rows",
    Code.REGION_MIXED: "what these tasks send each other would be lost or come twice: their states are of other cuts",
    Code.SPLIT_OWNED_TWICE: "two tasks would read the same records",
    Code.STATE_DISAGREES: "Flink restores it; tasks that are to have the same would begin with another",
    Code.INPUT_LOST: "what the job reads next is not there: it does not start, or goes on without those records",
    Code.STALE_PATH: "it was moved: the engine looks at the old place; a copy made by 'abs restore' has the new one",
}


class NextCommand(Protocol):
    """What to type about a finding, to be copied as it is. path: that the first finding of the code is about."""

    def __call__(
        self, code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
    ) -> str: ...


def look_at(
    code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
) -> str:
    """To look at the epoch, where the system offers nothing more."""
    return f"abs inspect {shlex.quote(store)}{'' if epoch is None else f'@{epoch.epoch}'}"


class Advice(NamedTuple):
    """What a system says of findings.

    heading: what its stores are called.
    meanings: of codes that mean something else there than elsewhere.
    """

    heading: str
    next_command: NextCommand = look_at
    meanings: Mapping[Code, str] = MappingProxyType({})


class Leftovers(NamedTuple):
    """What is known of files that nothing refers to.

    sizes: by path, as far as they were looked up.
    next: what to type about them, None where nothing removes them.
    why_not: why they stay.
    """

    sizes: Mapping[str, int]
    next: str | None = None
    why_not: str | None = None


def leftovers(storage: Storage, path: str, report: StoreReport) -> Leftovers | None:
    """What is known of files that nothing refers to, where nothing removes them; None if there are none."""
    paths = unreferenced(report)
    return Leftovers(sizes_of(storage, paths), f"abs inspect {shlex.quote(path)}") if paths else None


def unreferenced(report: StoreReport) -> set[str]:
    """The files that nothing refers to."""
    findings = (f for f in report.all_findings if f.code is Code.UNREFERENCED_FILE)
    return {finding.path for finding in findings if finding.path is not None}


def sizes_of(storage: Storage, paths: Iterable[str]) -> dict[str, int]:
    """Sizes of files, as far as they are looked up."""
    return {name: size for name in sorted(paths)[:LOOKED_UP] if (size := storage.size(name)) is not None}


Why = Mapping[int, Mapping[str, str]]
Notes = Mapping[int, Sequence[str]]


def to_json(
    report: StoreReport,
    *,
    store: str,
    format: str,
    job: str | None,
    quick: bool,
    unmet: Sequence[str],
    why: Why = MappingProxyType({}),
    notes: Notes = MappingProxyType({}),
) -> dict[str, Any]:
    """`abs.validate`. unmet: demands that do not hold (`abscli.report.demands`); findings: of no epoch; why, notes: as
    `abscli.stores.base.Checked` has them."""
    return {
        "schema": "abs.validate",
        "version": VERSION,
        "store": store,
        "format": format,
        "job": job,
        "quick": quick,
        "epochs": [
            {
                **plain(epoch),
                "why_unchecked": dict(why.get(epoch.epoch, {})),
                "notes": list(notes.get(epoch.epoch, ())),
            }
            for epoch in report.epochs
        ],
        "findings": plain(report.findings),
        "unchecked": [str(code) for code in report.unchecked],
        "latest_restorable": report.latest_restorable,
        "restorable": list(report.restorable),
        "unmet": list(unmet),
    }


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then an epoch a line, then a finding of no epoch a line."""
    lists = {"epochs": "epoch", "findings": "finding"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, ({"type": kind, **item} for key, kind in lists.items() for item in result[key])


def text(
    report: StoreReport,
    *,
    store: str,
    job: str | None,
    unmet: Sequence[str],
    advice: Advice,
    width: int = 80,
    ascii: bool = False,
    why: Why = MappingProxyType({}),
    notes: Notes = MappingProxyType({}),
    leftovers: Leftovers | None = None,
) -> str:
    """Verdicts as a table, what is unchecked and why, the findings by the epochs that have them, the sum of it."""
    shown = _Shown(report, store, advice, width, leftovers)
    heading = f"{advice.heading} {store}, job {job}" if job else f"{advice.heading} {store}"
    sections = [wrapped(heading, width), [*_verdicts(report, width, ascii), *_reasons(why, width)]]
    if report.findings:
        sections.append(["The store itself", *_findings(report.findings, None, shown)])
    sections += _by_epochs(shown)
    sections.append(_repeats(report, width))
    sections.append([line for one, of in _together(notes) for line in wrapped(one, width, "  ", f"{of}: ")])
    sections.append(_sum(report, unmet, width))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _verdicts(report: StoreReport, width: int, ascii: bool) -> list[str]:
    if not report.epochs:
        return ["No epochs."]
    rows = [
        (
            str(epoch.epoch),
            marked(epoch.verdict, ascii),
            str(len(epoch.findings)),
            "yes" if epoch.epoch in report.restorable else "no",
            moment(epoch.triggered),
        )
        for epoch in report.epochs
    ]
    header = ("EPOCH", "VERDICT", "FINDINGS", "RESTORABLE", "TRIGGERED (UTC)")
    lines = columns(header, rows, "rlrll", width, SPARE) + not_shown(header, rows, width, SPARE)
    return lines + _unchecked(report, width)


def _unchecked(report: StoreReport, width: int) -> list[str]:
    """What was not checked, by the epochs where it was not."""
    where: dict[tuple[int, ...], list[str]] = {}
    for code in sorted({*report.unchecked, *(code for epoch in report.epochs for code in epoch.unchecked)}):
        epochs = tuple(epoch.epoch for epoch in report.epochs if code in (*report.unchecked, *epoch.unchecked))
        where.setdefault(epochs, []).append(str(code))
    return [
        line
        for epochs, codes in where.items()
        for line in wrapped(", ".join(codes), width, "  ", "not checked: " if len(epochs) == len(report.epochs)
                            else f"not checked in {_epochs(epochs)}: ")
    ]  # fmt: skip


def _together(notes: Notes) -> list[tuple[str, str]]:
    """Each note once, with the epochs that it is of."""
    of: dict[str, list[str]] = {}
    for epoch, texts in notes.items():
        for one in texts:
            of.setdefault(one, []).append(str(epoch))
    return [(one, ", ".join(epochs)) for one, epochs in of.items()]


def _epochs(numbers: Sequence[int]) -> str:
    """`epoch 4`, or `epochs 1,3-9`."""
    return f"epoch{'s'[: len(numbers) != 1]} {Ranges.of(numbers).brief(SAME)}"


class _Shown(NamedTuple):
    """What is shown, and how."""

    report: StoreReport
    store: str
    advice: Advice
    width: int
    leftovers: Leftovers | None


def _by_epochs(shown: _Shown) -> list[list[str]]:
    """A section for every set of epochs that have the same findings: what many refer to is told once."""
    report, width = shown.report, shown.width
    reports = {epoch.epoch: epoch for epoch in report.epochs}
    having: dict[Finding, list[int]] = {}
    for number, epoch in reports.items():
        for finding in dict.fromkeys(epoch.findings):
            having.setdefault(finding, []).append(number)
    together: dict[tuple[int, ...], list[Finding]] = {(n,): [] for n, epoch in reports.items() if epoch.reason}
    for finding, numbers in having.items():
        together.setdefault(tuple(numbers), []).append(finding)
    sections = []
    for epochs, findings in sorted(together.items()):
        newest = reports[epochs[-1]]
        verdicts = {reports[number].verdict for number in epochs}
        title = _epochs(epochs).capitalize()
        lines = wrapped(f"{title}: {newest.verdict}" if len(verdicts) == 1 else title, width)
        if len(epochs) == 1 and newest.reason:
            lines += wrapped(newest.reason, width, "    ", "  because: ")
        sections.append([*lines, *_findings(findings, newest, shown)])
    return sections


def _reasons(why: Why, width: int) -> list[str]:
    """Why things are unchecked, each reason once, with the epochs where it does not hold for all."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for epoch, reasons in why.items():
        for code, reason in reasons.items():
            by_reason.setdefault((code, reason), []).append(epoch)
    lines: list[str] = []
    for (code, reason), epochs in by_reason.items():
        only = "" if len(epochs) == len(why) else f" ({some([str(epoch) for epoch in epochs], REPEATS)})"
        lines += wrapped(f"{reason}{only}", width, "      ", f"    {code}: ")
    return lines


def _findings(
    findings: Sequence[Finding], epoch: EpochReport | None, shown: _Shown
) -> list[str]:
    width = shown.width
    lines: list[str] = []
    for code in dict.fromkeys(finding.code for finding in findings):
        same = [finding for finding in findings if finding.code is code]
        if code is Code.MISSING_ACK:
            tasks = some([str(finding.task or "") for finding in same], 2 * SAME)
            lines += wrapped(f"{tasks}: {same[0].message}", width, "    ", f"  {code}: ")
            same = []
        if code is Code.UNREFERENCED_FILE and len(same) > 1:
            lines += _many_leftovers(same, shown)
            same = []
        for finding in same[:SAME]:
            where = " ".join(str(part) for part in (finding.channel or finding.task, finding.path) if part)
            lines += wrapped(f"{where + ': ' if where else ''}{finding.message}", width, "    ", f"  {code}: ")
        if len(same) > SAME:
            lines.append(f"  ... and {len(same) - SAME} more; -o json has them all")
        lines += wrapped(shown.advice.meanings.get(code, MEANING[code]), width, "    ", "    means: ")
        lines += _next(code, epoch, shown, next((f.path for f in findings if f.code is code and f.path), None))
    return lines


def _next(code: Code, epoch: EpochReport | None, shown: _Shown, path: str | None) -> list[str]:
    """What to do about findings of a code. path: that the first of them is about."""
    left = shown.leftovers
    if code is not Code.UNREFERENCED_FILE or left is None:
        command = shown.advice.next_command(code, epoch, shown.report, shown.store, path=path)
        return [f"    next: {command}"]
    stays = wrapped(left.why_not, shown.width, "    ", "    stays: ") if left.why_not else []
    return [*stays, f"    next: {left.next}"] if left.next else stays


def _many_leftovers(same: Sequence[Finding], shown: _Shown) -> list[str]:
    """Files that nothing refers to: a line for all of which the same is said."""
    sizes = shown.leftovers.sizes if shown.leftovers else {}
    lines = []
    for message in dict.fromkeys(finding.message for finding in same):
        paths = [finding.path or "" for finding in same if finding.message == message]
        measured = [sizes[path] for path in paths if path in sizes]
        amount = f", {size(sum(measured))}" if len(measured) == len(paths) else ""
        count = f"{len(paths):,} file{'s'[: len(paths) != 1]}{amount}: {message}"
        lines += wrapped(f"{count} ({some(paths, NAMED)})", shown.width, "    ", f"  {Code.UNREFERENCED_FILE}: ")
    return [*lines, "    -o json names each"] if len(same) > NAMED else lines


def _repeats(report: StoreReport, width: int) -> list[str]:
    """Of at-least-once epochs: how many records can repeat, and where."""
    lines = []
    for epoch in report.epochs:
        if epoch.policy != "at-least-once":
            continue
        message = "not known how many records"
        if epoch.repeats is not None:
            message = counted(total(epoch.repeats), "record")
            names = [f"{repeat.channel} {repeat.records:,}" for repeat in epoch.repeats]
            message += f": {some(names, REPEATS)}" if names else ""
        lines += wrapped(message, width, "    ", f"  epoch {epoch.epoch}: ")
    return ["Taken at-least-once: these can repeat after a restore", *lines] if lines else []


def _sum(report: StoreReport, unmet: Sequence[str], width: int) -> list[str]:
    newest = "none" if report.latest_restorable is None else str(report.latest_restorable)
    count = len(report.all_findings)
    lines = [f"Findings: {count or 'none'}", f"Newest epoch that can be restored: {newest}"]
    return lines + (wrapped(some(unmet, SAME), width, "  ", "Not met: ") if unmet else [])
