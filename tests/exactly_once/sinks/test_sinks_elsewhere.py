"""A sink that is given another place or another type, or is removed, after a process has ended between a manifest and
what shows its rows: they are not forgotten. What shows already is not written again in the new place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from abscli.engine.errors import UsageError
from formats.job.changes import Changes, Move
from formats.native import layout
from tests.support.jobs.lines import Gate, Lines, killed, make_table, write_lines
from tests.support.postgres import Postgres, execute, rows

PLACES = [("out", "jsonl"), ("more", "jsonl"), ("tables/a", "delta"), ("tables/b", "delta"), ("whither", "upsert"),
          ("whither_too", "upsert"), ("whither_new", "postgres"), ("-", "stdout"), ("ice_a", "iceberg"),
          ("ice_b", "iceberg")]  # fmt: skip
PAIRS = [(before, after) for before in PLACES for after in PLACES if before != after]


def named(pair: tuple[tuple[str, str], tuple[str, str]]) -> str:
    return "-".join(f"{out}.{type}" for out, type in pair).replace("/", "")


def a_chain() -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Each place once before, and once after, and all changes within a type."""
    within = [pair for pair in PAIRS if pair[0][1] == pair[1][1]]
    return list(dict.fromkeys([*zip(PLACES, [*PLACES[2:], *PLACES[:2]], strict=True), *within]))


@pytest.fixture
def database(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    url = postgres_server.url
    monkeypatch.setenv("LINES_DATABASE", url)
    for out, type in PLACES:
        if type in ("upsert", "postgres"):
            make_table(url, out, type)
    yield url
    for (gid,) in rows(url, "select gid from pg_prepared_xacts"):
        execute(url, f"rollback prepared '{gid}'")


def job(folder: Path, gate: Gate, place: tuple[str, str]) -> Lines:
    return Lines(folder, gate, *place)


@pytest.mark.sample(6)
@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("pair", a_chain(), ids=named)
def test_what_waits_is_shown_where_it_was_to_be_before_the_job_goes_on(
    tmp_path: Path, gate: Gate, pair: tuple[tuple[str, str], tuple[str, str]]
) -> None:
    write_lines(tmp_path, 6)
    before, after = (job(tmp_path, gate, place) for place in pair)
    killed(before, "reveal", 2)
    epochs = before.complete()
    with pytest.raises(UsageError, match=r"rows of epoch \d+ may be missing from .*: the run that staged them"):
        after.resume()
    assert before.complete() == epochs
    assert not after.shown()
    before.resume(epochs=1)
    after.resume()
    assert once(before, after) == {}


@pytest.mark.sample(6)
@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("pair", a_chain(), ids=named)
def test_what_shows_already_is_not_written_again(
    tmp_path: Path, gate: Gate, pair: tuple[tuple[str, str], tuple[str, str]]
) -> None:
    write_lines(tmp_path, 6)
    before, after = (job(tmp_path, gate, place) for place in pair)
    before.run(epochs=3)
    shown = before.shown()
    after.resume(epochs=1)
    after.resume()
    assert before.shown() == shown
    assert once(before, after) == {}


def test_rows_can_be_left_behind_on_purpose(tmp_path: Path, gate: Gate) -> None:
    write_lines(tmp_path, 6)
    before, after = job(tmp_path, gate, ("out", "jsonl")), job(tmp_path, gate, ("more", "jsonl"))
    killed(before, "reveal", 2)
    after.resume(accept_missing=True, epochs=1)
    after.resume()
    assert set(once(before, after).values()) == {-1}


def test_rows_of_a_sink_that_is_removed_are_not_forgotten(tmp_path: Path, gate: Gate) -> None:
    write_lines(tmp_path, 6)
    both = Lines(tmp_path, gate, also="more")
    killed(both, "reveal", 2)
    with pytest.raises(UsageError, match=r"sink also: .* may be missing from more"):
        replace(both, also=None).resume(changes=Changes(removed=("also",)))
    both.resume(epochs=1)
    replace(both, also=None).resume(changes=Changes(removed=("also",)))
    assert both.wrong() == {}


def test_the_old_target_of_a_run_that_ended_in_order_is_not_asked(
    tmp_path: Path, gate: Gate, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path, 6)
    before, after = job(tmp_path, gate, ("whither_new", "postgres")), job(tmp_path, gate, ("out", "jsonl"))
    before.run(epochs=2)
    monkeypatch.delenv("LINES_DATABASE")
    after.resume()
    monkeypatch.setenv("LINES_DATABASE", database)
    assert once(before, after) == {}


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(place).replace("/", ""))
def test_a_run_that_was_killed_after_it_had_published_is_run_once_more_before_its_target_changes(
    tmp_path: Path, gate: Gate, place: tuple[str, str]
) -> None:
    """Whether it had cannot be known without the old target, and only the job file says whom a job contacts."""
    write_lines(tmp_path, 6)
    before = job(tmp_path, gate, place)
    after = job(tmp_path, gate, ("csv", "csv"))
    before.run(epochs=2)
    (tmp_path / "a" / layout.written("out")).unlink(missing_ok=True)  # as it was before the run ended in order
    with pytest.raises(UsageError, match="did not end cleanly"):
        after.resume()
    before.resume(epochs=1)
    after.resume()
    lost = {line for line, count in once(before, after).items() if count < 0}
    assert not lost


def test_a_table_that_is_moved_with_its_job_keeps_what_it_shows(tmp_path: Path, gate: Gate) -> None:
    write_lines(tmp_path, 6)
    before, after = job(tmp_path, gate, ("tables/a", "delta")), job(tmp_path, gate, ("tables/b", "delta"))
    before.run(epochs=3)
    (tmp_path / "tables" / "a").rename(tmp_path / "tables" / "b")
    replace(after, id="shown").resume(changes=Changes((Move("out", "shown"),)))
    assert after.wrong() == {}


def once(before: Lines, after: Lines) -> dict[str, int]:
    """How much more or less often than once each line is in either place, where it is not once."""
    shown = before.shown() + after.shown()
    due = Counter(line for file in (before.folder / "in").iterdir() for line in file.read_text().splitlines())
    return {line: shown[line] - due[line] for line in shown.keys() | due.keys() if shown[line] != due[line]}
