"""What `abs validate` says of output: parts that are gone, changed or not named, and what cannot be judged."""

from __future__ import annotations

import os
import shutil

from abscli.report.findings import Code, StoreReport
from formats.native import layout
from formats.native.sink import CLAIMS, epoch_of_part, part_name
from tests.support.jobs.lines import Lines, killed


def why_output_is_unchecked(lines: Lines) -> dict[int, str]:
    """The reason, by epoch; every epoch whose output is unchecked has one."""
    result = lines.checked()
    why = result.why
    assert {n for n in why if Code.SINK_PART_MISSING in why[n]} == {
        row.epoch for row in result.report.epochs if Code.SINK_PART_MISSING in row.unchecked
    }
    return {n: reasons[Code.SINK_PART_MISSING] for n, reasons in why.items()}


def output_findings(report: StoreReport) -> list[tuple[str, str]]:
    """Code and file name of what is said of output."""
    return [(f.code.value, os.path.basename(f.path or "")) for f in report.all_findings]


def test_a_store_whose_output_is_whole_has_nothing_to_say_of_it(lines: Lines) -> None:
    lines.run(epochs=4, keep=2)
    lines.run(from_epoch=lines.complete()[-1], epochs=2, keep=2)
    report = lines.validated()
    assert output_findings(report) == []
    assert all(Code.SINK_PART_MISSING not in row.unchecked for row in report.epochs)


def test_a_part_that_is_gone_is_a_finding_of_the_epoch_that_named_it(lines: Lines) -> None:
    lines.run(epochs=5)
    victim = sorted(lines.sink.visible(), key=epoch_of_part)[4]
    (lines.folder / "out" / victim).unlink()
    for quick in (False, True):
        report = lines.validated(quick=quick)
        assert output_findings(report) == [("sink-part-missing", victim)]
        assert (report.latest_restorable or 0) < epoch_of_part(victim)


def test_a_flipped_byte_of_output_is_found_where_bytes_are_read(lines: Lines) -> None:
    lines.run(epochs=3)
    victim = lines.folder / "out" / sorted(lines.sink.visible())[1]
    victim.write_bytes(victim.read_bytes().replace(b"line", b"lime", 1))
    assert output_findings(lines.validated()) == [("sink-part-missing", victim.name)]
    assert output_findings(lines.validated(quick=True)) == []


def test_a_part_that_waits_to_be_shown_is_not_missing(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    assert lines.sink.staged()
    assert output_findings(lines.validated()) == []


def test_a_visible_part_that_no_epoch_names_is_a_finding(lines: Lines) -> None:
    lines.run(epochs=3)
    newest = lines.complete()[-1]
    stray = lines.folder / "out" / part_name(7, newest)
    stray.write_text('{"line": "line 0 0"}\n')
    assert output_findings(lines.validated()) == [("unreferenced-sink-part", stray.name)]
    lines.resume()
    assert lines.wrong() == {}
    assert output_findings(lines.validated()) == []


def test_output_that_another_store_took_over_or_that_is_not_here_is_not_judged(lines: Lines) -> None:
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    lines.resume("b", epochs=1)
    report = lines.validated()
    assert output_findings(report) == []
    out = str(lines.folder / "out")
    reasons = why_output_is_unchecked(lines)
    assert reasons
    assert set(reasons.values()) == {f"{out} shows the output of another store now, {lines.folder / 'b'}"}
    shutil.rmtree(out)
    assert output_findings(lines.validated()) == []
    assert set(why_output_is_unchecked(lines).values()) == {
        f"{out} is missing"
    }


def test_validate_says_which_claim_of_a_sink_cannot_be_read(lines: Lines) -> None:
    lines.run(epochs=3)
    newest = sorted((lines.folder / "out" / CLAIMS).glob("*.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    assert output_findings(lines.validated()) == []
    (reason,) = set(why_output_is_unchecked(lines).values())
    assert reason.startswith(f"what {lines.folder / 'out'} says of itself cannot be read: ")
    assert newest.name in reason


def test_output_is_unchecked_where_the_attempts_that_made_it_cannot_be_read(lines: Lines) -> None:
    lines.run(epochs=3)
    record = lines.folder / "a" / layout.attempt(1)
    record.write_bytes(record.read_bytes()[:-9])
    (reason,) = set(why_output_is_unchecked(lines).values())
    assert reason.startswith(f"which attempts made the output is not known: {record}: ")
