"""What `abs validate` shows: verdicts, and every finding with what it means and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from abscli.planner.repeats import total
from abscli.report.findings import HARMLESS, Code, EpochReport, Finding, StoreReport
from abscli.report.standing import Standing, epochs_named, standing
from abscli.text.columns import columns, counted, marked, moment, not_shown, size, some, wrapped
from formats.storage import Storage
from formats.values import plain
from formats.version import FORMAT_VERSION

LOOKED_UP = 10_000
"""Files that nothing refers to of which the sizes are looked up."""
SAME = 20
"""Messages of one group of findings that are listed without -v."""
TASKS = 12
"""Tasks that a finding names."""
NAMED = 3
"""Files that nothing refers to that are named, of those in one place; json has them all."""
REPEATS = 4
"""Channels of an epoch that are named as those on which records can repeat; json has them all."""

MEANING = {
    Code.MISSING_ACK: "the state of this task is missing; the epoch cannot be restored as it is",
    Code.MISSING_FILE: "the epoch needs this file; this part cannot be restored",
    Code.SIZE_MISMATCH: "the file was truncated or extended; this part cannot be restored",
    Code.DIGEST_MISMATCH: "the bytes are not those that were written; do not trust the contents",
    Code.ROW_MISMATCH: "the file has another number of rows than the task wrote",
    Code.UNREADABLE: "the file does not have the format that it should have",
    Code.UNREFERENCED_FILE: "no epoch needs the file; it only takes space",
    Code.ABANDONED_UPLOAD: "no epoch refers to it and nobody will complete it; it only takes space in the bucket",
    Code.ABANDONED_TRANSACTION: "no epoch refers to it and nobody will finish it; it holds locks in the database",
    Code.SINK_PART_PENDING: "the job ended before it delivered these rows; the next run delivers them",
    Code.MISSING_LOG: "a restore would lose the records that were in flight",
    Code.LOG_MISMATCH: "two logs of the job contradict each other; it is unknown which one is right",
    Code.CONSERVATION: "the snapshot is not consistent: a restore would lose or repeat records",
    Code.POSITION_REGRESSED: "the source was rewound without a restore: records are in the state twice",
    Code.TOPOLOGY_MISSING: "without the job graph it is unknown to which operator a state belongs",
    Code.MANIFEST_UNREADABLE: "it is unknown which files the epoch consists of",
    Code.MISPLACED_KEY: "the task has keys of another task: later records of these keys would miss the state",
    Code.SINK_PART_MISSING: "readers lack rows of the output; resuming from an earlier epoch writes them again",
    Code.UNREFERENCED_SINK_PART: "published by an attempt that had lost the sink, or put there; readers see its rows",
    Code.REGION_MIXED: "the tasks have states of different checkpoints: records between them would be lost or repeated",
    Code.SPLIT_OWNED_TWICE: "two tasks would read the same records",
    Code.STATE_MISMATCH: "Flink restores it; tasks that should have equal state would start with different state",
    Code.INPUT_MISSING: "the records that the job reads next are missing: it does not start, or it skips them",
    Code.INPUT_RECREATED: "a topic or table was deleted and created again; state keeps what was read of the old one",
    Code.STALE_PATH: "the file was moved: the engine looks in the old place; a copy by `abs restore` has the new path",
}


class NextCommand(Protocol):
    """What to type about a finding, to be copied as it is. path: that the first finding of the code is about."""

    def __call__(
        self, code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
    ) -> str: ...


def look_at(code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None) -> str:
    """To look at the epoch, where the system offers nothing more."""
    return f"abs inspect {shlex.quote(store)}{'' if epoch is None else f'@{epoch.epoch}'}"


class Advice(NamedTuple):
    """What a system says of findings.

    heading: what its stores are called.
    meanings: of codes that mean something else there than elsewhere.
    unit: what the system calls an epoch.
    """

    heading: str
    next_command: NextCommand = look_at
    meanings: Mapping[Code, str] = MappingProxyType({})
    unit: str = "epoch"


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
    unsatisfied: Sequence[str],
    why: Why = MappingProxyType({}),
    notes: Notes = MappingProxyType({}),
) -> dict[str, Any]:
    """`abs.validate`. unsatisfied: demands that do not hold (`abscli.report.demands`); findings: of no epoch; why,
    notes: as `abscli.stores.base.Checked` has them."""
    return {
        "schema": "abs.validate",
        "version": FORMAT_VERSION,
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
        "sinks": plain(report.sinks),
        "latest_restorable": report.latest_restorable,
        "candidates": list(report.candidates),
        "restorable": list(report.restorable),
        "unsatisfied": list(unsatisfied),
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
    unsatisfied: Sequence[str],
    advice: Advice,
    width: int = 80,
    ascii: bool = False,
    verbose: bool = False,
    verdict: Standing | None = None,
    why: Why = MappingProxyType({}),
    notes: Notes = MappingProxyType({}),
    leftovers: Leftovers | None = None,
) -> str:
    """Return the page of `abs validate`: the verdict, a table of epochs, the findings grouped, what was not checked.

    unsatisfied: the demands of the command line that are not met.
    verbose: list every finding of every epoch instead of grouping equal ones.
    verdict: on what was checked; None: the whole store, every file of which was read.
    """
    shown = _Shown(report, store, advice, width, leftovers, verbose)
    heading = f"{advice.heading} {store}, job {job}" if job else f"{advice.heading} {store}"
    verdict = verdict or standing(report, None, unit=advice.unit)
    sections = [
        verdict_text(verdict, unsatisfied, width),
        wrapped(heading, width),
        _verdicts(report, width, ascii, advice.unit),
        *(_group(group, shown) for group in _groups(report, verbose=verbose)),
        _sinks(report, width),
        _repeats(report, width, advice.unit),
        [line for note, numbers in _together(notes)
         for line in wrapped(note, width, "  ", f"{epochs_named(numbers, advice.unit).capitalize()}: ")],
        _unchecked(shown, why),
    ]  # fmt: skip
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def verdict_text(verdict: Standing, unsatisfied: Sequence[str], width: int) -> list[str]:
    """Return the verdict, and which demands of the command line are not met."""
    options = [demand for demand in unsatisfied if demand.startswith("--")]
    lines = wrapped(str(verdict), width)
    return lines + (wrapped(some(options, SAME), width, "  ", "Not met: ") if options else [])


def _verdicts(report: StoreReport, width: int, ascii: bool, unit: str) -> list[str]:
    if not report.epochs:
        return []
    rows = [
        (
            str(epoch.epoch),
            marked(epoch.verdict, ascii),
            str(len(epoch.findings)),
            "yes" if epoch.epoch in report.restorable else "no",
            moment(epoch.triggered or epoch.modified),
        )
        for epoch in report.epochs
    ]
    time = "TRIGGERED (UTC)" if any(epoch.triggered for epoch in report.epochs) else "MODIFIED (UTC)"
    header, spare = (unit.upper(), "VERDICT", "FINDINGS", "RESTORABLE", time), ("FINDINGS", time)
    lines = columns(header, rows, "rlrll", width, spare) + not_shown(header, rows, width, spare)
    for epoch in report.epochs:
        if epoch.reason:
            lines += wrapped(epoch.reason, width, "    ", f"  {unit} {epoch.epoch}: ")
    return lines


def _sinks(report: StoreReport, width: int) -> list[str]:
    """Return the verdict on the target of each sink, if a job file named the targets."""
    if all(sink.target is None for sink in report.sinks):
        return []
    rows = [(sink.sink, str(sink.verdict), sink.target or "") for sink in report.sinks]
    reasons = [
        line
        for sink in report.sinks
        if sink.reason is not None
        for line in wrapped(sink.reason, width, "    ", f"  {sink.sink}: ")
    ]
    return [*columns(("SINK", "VERDICT", "TARGET"), rows, "lll", width), *reasons]


def _together(notes: Notes) -> list[tuple[str, list[int]]]:
    """Return each note once, with the epochs that have it."""
    of: dict[str, list[int]] = {}
    for epoch, texts in notes.items():
        for note in texts:
            of.setdefault(note, []).append(epoch)
    return list(of.items())


def _unchecked(shown: _Shown, why: Why) -> list[str]:
    """Return what was not checked, with the reasons and the epochs where they apply to a part only."""
    report, unit = shown.report, shown.advice.unit
    where: dict[tuple[str, str], list[int]] = {}
    for epoch in report.epochs:
        reasons = why.get(epoch.epoch, {})
        for code in dict.fromkeys(map(str, (*report.unchecked, *epoch.unchecked, *reasons))):
            where.setdefault((code, reasons.get(code, "")), []).append(epoch.epoch)
    lines = []
    for (name, reason), numbers in sorted(where.items()):
        part = "" if len(numbers) == len(report.epochs) else f" ({epochs_named(numbers, unit)})"
        lines += wrapped(f"{name}{part}{': ' if reason else ''}{reason}", shown.width, "    ", "  ")
    return ["Not checked:", *lines] if lines else []


class _Shown(NamedTuple):
    """What is shown, and how."""

    report: StoreReport
    store: str
    advice: Advice
    width: int
    leftovers: Leftovers | None
    verbose: bool


class _Group(NamedTuple):
    """Findings of one code that several epochs have alike.

    epochs: ascending; empty for findings of the store itself.
    findings: those of the newest epoch; of each epoch the same tasks and messages.
    """

    code: Code
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]


def _groups(report: StoreReport, *, verbose: bool) -> list[_Group]:
    """Return all findings in groups: of the store first, then by epoch, those that do no harm last.

    Paths are left out of the comparison, since each checkpoint of Flink has a folder of its own. verbose: epochs that
    differ in a path are apart.
    """
    groups = [_Group(code, (), tuple(found)) for code, found in _by_code(report.findings).items()]
    alike: dict[tuple[object, ...], list[int]] = {}
    newest: dict[tuple[object, ...], tuple[Finding, ...]] = {}
    for epoch in report.epochs:
        for code, found in _by_code(epoch.findings).items():
            parts = [(f.path if verbose else None, str(f.channel or f.task or ""), f.message) for f in found]
            key = (code, *sorted(parts, key=str))
            alike.setdefault(key, []).append(epoch.epoch)
            newest[key] = tuple(found)
    groups += [_Group(found[0].code, tuple(alike[key]), found) for key, found in newest.items()]
    return sorted(groups, key=lambda group: (group.code in HARMLESS, group.epochs[:1]))


def _by_code(findings: Sequence[Finding]) -> dict[Code, list[Finding]]:
    found: dict[Code, list[Finding]] = {}
    for finding in dict.fromkeys(findings):
        found.setdefault(finding.code, []).append(finding)
    return found


def _group(group: _Group, shown: _Shown) -> list[str]:
    """Return the lines of a group: what it is of, each message with its tasks and files, the meaning, the command."""
    code, findings, width = group.code, group.findings, shown.width
    where = epochs_named(group.epochs, shown.advice.unit) if group.epochs else "the store"
    each = f" ({len(findings):,} each)" if len(group.epochs) > 1 and len(findings) > 1 else ""
    alone = f" ({len(findings):,})" if len(group.epochs) < 2 and len(findings) > 1 else ""
    lines = wrapped(f"{code} in {where}{each or alone}", width)
    if code is Code.UNREFERENCED_FILE and len(findings) > 1:
        lines += _many_leftovers(findings, shown)
    elif shown.verbose:
        lines += [line for finding in findings for line in _finding([finding], width)]
    else:
        messages: dict[str, list[Finding]] = {}
        for finding in findings:
            messages.setdefault(finding.message, []).append(finding)
        for found in list(messages.values())[:SAME]:
            lines += _finding(found, width)
        if len(messages) > SAME:
            lines.append(f"  and {len(messages) - SAME:,} more: -v lists all of them")
    lines += wrapped(shown.advice.meanings.get(code, MEANING[code]), width, "    ", "  means: ")
    epoch = next((one for one in shown.report.epochs if one.epoch == (group.epochs or (None,))[-1]), None)
    return lines + _next(code, epoch, shown, next((f.path for f in findings if f.path), None))


def _finding(findings: Sequence[Finding], width: int) -> list[str]:
    """Return one message, with the tasks or channels and the files that it is about."""
    tasks = list(dict.fromkeys(str(f.channel or f.task) for f in findings if f.channel or f.task))
    paths = list(dict.fromkeys(f.path for f in findings if f.path))
    named = some(paths, 1) + (" files" if len(paths) > 1 else "")
    where = " ".join(part for part in (some(tasks, TASKS), named) if part)
    return wrapped(f"{where}{': ' if where else ''}{findings[0].message}", width, "    ", "  ")


def _next(code: Code, epoch: EpochReport | None, shown: _Shown, path: str | None) -> list[str]:
    """Return the command to type about findings of a code. path: that the first of them is about."""
    left = shown.leftovers
    if code is not Code.UNREFERENCED_FILE or left is None:
        command = shown.advice.next_command(code, epoch, shown.report, shown.store, path=path)
        return [f"  Next: {command}"]
    stays = wrapped(left.why_not, shown.width, "    ", "  stays: ") if left.why_not else []
    return [*stays, f"  Next: {left.next}"] if left.next else stays


def _many_leftovers(same: Sequence[Finding], shown: _Shown) -> list[str]:
    """Return a line per message for files that nothing refers to, with their number and size."""
    sizes = shown.leftovers.sizes if shown.leftovers else {}
    lines = []
    for message in dict.fromkeys(finding.message for finding in same):
        paths = [finding.path or "" for finding in same if finding.message == message]
        measured = [sizes[path] for path in paths if path in sizes]
        amount = f", {size(sum(measured))}" if len(measured) == len(paths) else ""
        count = f"{counted(len(paths), 'file')}{amount}: {message}"
        lines += wrapped(f"{count} ({some(paths, len(paths) if shown.verbose else NAMED)})", shown.width, "    ", "  ")
    return lines


def _repeats(report: StoreReport, width: int, unit: str) -> list[str]:
    """Return how many records of at-least-once epochs can repeat, and where."""
    lines = []
    for epoch in report.epochs:
        if epoch.policy != "at-least-once":
            continue
        message = "not known how many records"
        if epoch.repeats is not None:
            message = counted(total(epoch.repeats), "record")
            names = [f"{repeat.channel} {repeat.records:,}" for repeat in epoch.repeats]
            message += f": {some(names, REPEATS)}" if names else ""
        lines += wrapped(message, width, "    ", f"  {unit} {epoch.epoch}: ")
    return ["Taken at-least-once: these can repeat after a restore", *lines] if lines else []
