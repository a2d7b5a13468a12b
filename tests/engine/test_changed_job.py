"""A job that has changed since the epoch that it goes on from: what operators had goes on with them, is dropped on
purpose, or the change is refused and nothing has happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from abscli.engine import journal
from abscli.engine.errors import UsageError
from abscli.engine.generations import generation
from abscli.engine.generations.change import change_since
from abscli.engine.generations.generation import opening
from abscli.engine.job import Outcome, rehearse, run_job
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.telemetry.news import Changed, NewGeneration, News, OtherCode
from abscli.planner.repeats import may_repeat
from abscli.stores.native.check import check
from abscli.stores.native.plan import newest_whole
from formats.errors import NoRecovery, OtherJob
from formats.ids import TaskId
from formats.job.file import BadFile, parse_job
from formats.job.model import Topology
from formats.native.counters import Channels, by_operator
from formats.native.facts import PartFacts
from formats.native.sink import SinkFolder
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.lines import Gate
from tests.support.jobs.small import inline, last_counts, open_gate, write_countdown

pytestmark = pytest.mark.integration

LINES = "lines: {source: {type: text, path: in/*.txt}}"
WORDS = "words: {from: lines, flat_map: words}"
COUNTS = 'counts: {from: words, reduce: {key: [word], n: {count: "*"}}}'
OUT = "out: {from: counts, sink: {type: jsonl, path: out}}"
EPOCHS = 30


def text(*operators: str, head: str = "") -> str:
    body = "".join(f"  {operator}\n" for operator in operators)
    return f"version: 1\njob: words\nparallelism: 2\nmax_parallelism: 8\n{head}operators:\n{body}"


AS_IT_WAS = text(LINES, WORDS, COUNTS, OUT)


class Job:
    """One folder with input, a job file that changes, and a store. news: what the last run said of changes."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder = folder
        self.gate = gate
        self.news: list[Changed] = []
        self.counts: Counter[str] = Counter()
        (folder / "in").mkdir()
        for i in range(2):
            rows = [f"w{(i * 7 + k) % 23} w{k % 5}" for k in range(EPOCHS * 10)]
            self.counts.update(word for row in rows for word in row.split())
            (folder / "in" / f"{i}.txt").write_text("\n".join(rows) + "\n")

    def run(self, job: str, *, epochs: int | None = None, **more: object) -> Outcome:
        """From the newest whole epoch, if there is one; to the end, or until so many epochs are complete."""
        self.gate.epochs, self.gate.read, self.news = 0, {}, []
        services = []

        def progress(p: object) -> None:
            self.gate.epochs = max(self.gate.epochs, p.epochs)  # type: ignore[attr-defined]
            if epochs is not None and p.epochs >= epochs and services:  # type: ignore[attr-defined]
                services.pop().request_stop()

        def heard(news: News) -> None:
            if isinstance(news, Changed):
                self.news.append(news)

        path = self.folder / "job.yaml"
        path.write_text(job)
        parsed = parse_job(path)
        start = newest_whole(self.store)[0].facts.epoch if (self.folder / "store").exists() else None
        options = inline(
            self.folder, **{"interval": 0.005, "keep": None, "from_epoch": start, "changes": parsed.changes, **more}
        )
        return run_job(
            parsed.topology, str(self.folder / "store"), options, progress, services.append, on_news=heard
        )

    @property
    def store(self) -> NativeStore:
        return NativeStore(LocalStorage(self.folder / "store"))

    def files(self) -> dict[str, bytes]:
        """All of the store and the output."""
        places = [self.folder / "store", self.folder / "out"]
        return {str(p): p.read_bytes() for place in places for p in sorted(place.rglob("*")) if p.is_file()}

    def refused(self, job: str, kind: type[Exception] = OtherJob, **more: object) -> Exception:
        """The error of a run that changes nothing."""
        before = self.files()
        with pytest.raises(kind) as raised:
            self.run(job, **more)
        assert self.files() == before
        return raised.value

    def sound(self) -> None:
        """Every epoch that is complete is whole and consistent, and the output is what they name."""
        report = check(self.store.storage, None, quick=False, progress=lambda read, total: None).report
        assert not report.findings
        assert not [row for row in report.epochs if row.findings and row.verdict is not Status.INCOMPLETE]

    @property
    def generation(self) -> NewGeneration:
        (news,) = [news for news in self.news if isinstance(news, NewGeneration)]
        return news


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    gate = Gate()
    gate.install(monkeypatch.setattr)
    return Job(tmp_path, gate)


RENAMED = text(
    "rows: {source: {type: text, path: in/*.txt}}",
    "split: {from: rows, flat_map: words}",
    'tally: {from: split, reduce: {key: [word], n: {count: "*"}}}',
    "shown: {from: tally, sink: {type: jsonl, path: out}}",
    head="moved: [{from: lines, to: rows}, {from: counts, to: tally}, {from: out, to: shown}]\n",
)


def test_operators_that_have_moved_go_on_with_state_positions_and_output(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=3)
    visible = SinkFolder(str(job.folder / "out")).visible()
    first = job.run(RENAMED, epochs=2)
    assert job.generation == NewGeneration(
        2, first.parent + 2, {"lines": "rows", "counts": "tally", "out": "shown"}, ("words",), ("split",)
    )
    assert visible.items() <= SinkFolder(str(job.folder / "out")).visible().items()
    last = job.run(RENAMED)  # the lines are spent: they may stay
    assert last.finished
    assert not job.news
    assert last_counts(job.folder) == job.counts
    job.sound()


def test_the_first_epoch_of_the_generation_only_refers_to_what_is_there(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=3)
    old = job.store.parts(newest_whole(job.store)[0].facts.epoch)
    job.run(RENAMED, epochs=1)
    manifest = job.store.manifest(job.generation.epoch)
    new = job.store.parts(job.generation.epoch)
    assert (manifest.generation, manifest.moved) == (2, {"lines": "rows", "counts": "tally", "out": "shown"})
    assert [part.state for part in new] == [part.state for part in old]
    assert [part.positions for part in new] == [part.positions for part in old]
    assert not any(any(counts) for part in new for counts in part.sent.values())
    assert manifest.bytes == manifest.tasks_file.bytes  # facts alone


def test_later_generations_and_going_back_over_them_show_each_row_once(job: Job) -> None:
    first = job.run(AS_IT_WAS, epochs=3)
    job.run(RENAMED, epochs=2)
    again = RENAMED.replace("tally", "sums").replace("shown", "printed").replace(
        "{from: counts, to: sums}, {from: out, to: printed}",
        "{from: counts, to: tally}, {from: tally, to: sums}, {from: out, to: shown}, {from: shown, to: printed}",
    )  # fmt: skip
    job.run(again, epochs=2)
    assert job.generation.moved == {"tally": "sums", "shown": "printed"}
    job.sound()
    job.run(again, from_epoch=first.epoch, epochs=2)  # over the chain at once
    assert job.generation.moved == {"lines": "rows", "counts": "sums", "out": "printed"}
    job.sound()
    job.run(AS_IT_WAS, from_epoch=first.epoch)  # and the job as it was
    assert not job.news
    assert last_counts(job.folder) == job.counts
    job.sound()


def test_state_without_an_owner_is_refused_with_the_lines_that_let_it_pass(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    error = job.refused(RENAMED.replace(RENAMED[RENAMED.index("moved") : RENAMED.index("operators")], ""))
    assert isinstance(error, OtherJob)
    assert "operator counts was removed, and its state would have no owner" in error.message
    assert error.hint is not None
    line = error.hint.split("`")[1]
    assert line == "moved: [{from: lines, to: rows}, {from: counts, to: tally}, {from: out, to: shown}]"
    head = f"{line}\n"
    job.run(RENAMED.replace(RENAMED[RENAMED.index("moved") : RENAMED.index("operators")], head))
    assert last_counts(job.folder) == job.counts


def test_what_is_removed_is_dropped_and_what_is_added_begins_with_what_comes(job: Job) -> None:
    seen = "seen: {from: words, distinct: [word]}"
    kept = "kept: {from: seen, sink: {type: jsonl, path: kept}}"
    start = text(LINES, WORDS, COUNTS, OUT, seen, kept)
    job.run(start, epochs=3)
    shown = sorted((job.folder / "kept").glob("part-*"))
    error = job.refused(AS_IT_WAS)
    assert error.hint.split("`")[1] == "removed: [seen, kept]"  # type: ignore[attr-defined]
    job.run(text(LINES, WORDS, COUNTS, OUT, head="removed: [seen, kept]\n"), epochs=2)
    assert job.generation.removed == ("seen", "kept")
    assert sorted((job.folder / "kept").glob("part-*")) == shown  # what it has shown stays
    job.run(text(LINES, WORDS, COUNTS, OUT, seen, kept.replace("path: kept", "path: anew")))
    assert job.generation.added == ("seen", "kept")
    assert last_counts(job.folder) == job.counts
    rows = [json.loads(row) for part in (job.folder / "anew").glob("part-*") for row in part.read_text().splitlines()]
    assert {row["word"] for row in rows} == set(job.counts)  # each word comes again, and is new to it
    job.sound()


def test_a_step_put_between_two_operators_needs_no_line(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    between = "plain: {from: words, map: identity}"
    job.run(text(LINES, WORDS, between, COUNTS.replace("from: words", "from: plain"), OUT))
    assert job.generation.added == ("plain",)
    assert last_counts(job.folder) == job.counts
    job.sound()


def test_a_source_that_is_new_is_read_from_its_beginning(job: Job) -> None:
    job.run(AS_IT_WAS)
    (job.folder / "more").mkdir()
    (job.folder / "more" / "a.txt").write_text("w1 w2\nw1\n")
    more = "more: {source: {type: text, path: more/*.txt}}"
    job.run(text(LINES, more, WORDS.replace("from: lines", "from: [lines, more]"), COUNTS, OUT))
    assert last_counts(job.folder) == job.counts + Counter({"w1": 2, "w2": 1})
    job.sound()


@pytest.mark.parametrize(
    ("operators", "head", "message"),
    [
        ((LINES, WORDS, COUNTS.replace("[word]", "[line]"), OUT), "", "key was [word], is [line]"),
        ((LINES, WORDS, "counts: {from: words, distinct: [word]}", OUT), "", "kind was reduce, is distinct"),
        ((LINES, WORDS, COUNTS.replace("n:", "m:"), OUT), "", "outputs was n: count(*), is m: count(*)"),
        (
            (LINES, WORDS, COUNTS.replace("counts", "tally").replace("[word]", "[line]"),
             OUT.replace("from: counts", "from: tally")),
            "moved: [{from: counts, to: tally}]\n",
            "operator counts, which moves to tally, has changed since the epoch was taken: key was [word], is [line]",
        ),
    ],
)  # fmt: skip
def test_state_that_does_not_fit_its_operator_is_refused(
    job: Job, operators: tuple[str, ...], head: str, message: str
) -> None:
    job.run(AS_IT_WAS, epochs=2)
    error = job.refused(text(*operators, head=head))
    assert message in str(error)
    assert "`removed: [counts]`" in error.hint  # type: ignore[attr-defined]


def test_state_whose_key_changes_begins_anew_under_another_id(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    sums = COUNTS.replace("counts", "sums").replace("n:", "m:")
    job.run(text(LINES, WORDS, sums, OUT.replace("from: counts", "from: sums"), head="removed: [counts]\n"), epochs=2)
    detail = newest_whole(job.store)[0]
    assert {op.id for op in detail.operators} == {"lines", "words", "sums", "out"}
    assert job.store.state_schema(detail.facts.epoch, "sums").names[-1] == "m"
    job.sound()


def test_two_operators_cannot_become_one(job: Job) -> None:
    seen = "seen: {from: words, distinct: [word]}"
    job.run(text(LINES, WORDS, COUNTS, seen, OUT), epochs=2)
    error = job.refused(AS_IT_WAS.replace("operators:", "moved: [{from: seen, to: counts}]\noperators:"))
    assert "operators counts and seen would both become counts" in str(error)


def test_a_row_wise_operator_may_become_another_kind(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    plain = (LINES, WORDS, "same: {from: words, map: identity}", COUNTS.replace("from: words", "from: same"), OUT)
    job.run(text(*plain), epochs=2)
    job.run(text(*plain).replace("same: {from: words, map", "same: {from: words, flat_map"))
    assert not job.news  # the same tasks and channels
    assert last_counts(job.folder) == job.counts


def test_a_sink_that_is_new_does_not_set_aside_what_the_one_before_it_showed(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    other = text(LINES, WORDS, COUNTS, OUT.replace("out:", "shown:"), head="removed: [out]\n")
    error = job.refused(other, UsageError)
    assert "contains the output of sink out of this job" in str(error)
    assert "`moved: [{from: out, to: shown}]`" in error.hint  # type: ignore[attr-defined]
    job.run(other, take_ownership=True, epochs=1)
    assert any((job.folder / "out" / "superseded").rglob("part-*"))


def test_a_sink_that_comes_back_after_it_was_removed_is_told_the_ways_that_there_are(job: Job) -> None:
    other = OUT.replace("out", "shown")
    job.run(text(LINES, WORDS, COUNTS, OUT, other), epochs=2)
    job.run(text(LINES, WORDS, COUNTS, other, head="removed: [out]\n"), epochs=1)
    back = text(LINES, WORDS, COUNTS, OUT, other)
    error = job.refused(back, UsageError)
    assert "contains the output of sink out of this job" in str(error)
    assert "`moved" not in error.hint  # type: ignore[attr-defined]
    assert "--take-ownership" in error.hint  # type: ignore[attr-defined]
    job.run(back, take_ownership=True, epochs=1)


@pytest.mark.parametrize("policy", ["unaligned", "at-least-once"])
def test_channel_state_follows_its_edge(job: Job, policy: str) -> None:
    job.run(AS_IT_WAS, epochs=3, policy=policy)
    job.run(RENAMED.replace("split", "words"), epochs=2)
    job.sound()
    job.run(RENAMED.replace("split", "words"), policy="aligned")
    if policy == "unaligned":
        assert last_counts(job.folder) == job.counts
    job.sound()


def test_records_that_will_repeat_are_still_known_in_a_new_generation(job: Job) -> None:
    """Under at-least-once, the copy of `counts/1` has three records that their sender sent after its own copy."""
    job.run(AS_IT_WAS, epochs=2, policy="at-least-once")
    epoch = newest_whole(job.store)[0].facts.epoch
    (job.folder / "job.yaml").write_text(RENAMED.replace("split", "words"))
    new = parse_job(job.folder / "job.yaml")
    change = change_since(job.store, epoch, new.topology, new.changes)
    parts = []
    for part in job.store.parts(epoch):
        if part.task == TaskId("counts", 1):
            first, *others = part.received["words"]
            part = msgspec.structs.replace(part, received={"words": (first + 3, *others)})
        parts.append(part)

    def repeats(topology: Topology, parts: Sequence[PartFacts]) -> dict[str, int]:
        found = may_repeat("at-least-once", Channels(topology, by_operator(topology, parts)))
        return {str(repeat.channel): repeat.records for repeat in found or ()}

    before = repeats(job.store.topology(epoch), parts)
    after = repeats(new.topology, opening(change, new.topology, parts, "at-least-once").parts)
    assert before["words/0->counts/1"] >= 3
    assert after == {name.replace("counts", "tally").replace("lines", "rows"): n for name, n in before.items()}


RING = """
version: 1
job: countdown
parallelism: 2
{head}operators:
  rows: {{source: {{type: jsonl, path: in/*.jsonl}}}}
  {ring}: {{from: {{rows: {{partition: hash, key: [id]}}, step: {{partition: rebalance}}}}, union: {{}}}}
  step: {{from: {ring}, flat_map: countdown:step}}
  visits: {{from: {ring}, reduce: {{key: [id], n: {{count: "*"}}}}}}
  out: {{from: visits, sink: {{type: jsonl, path: out}}}}
"""


def logged(folder: Path) -> int:
    store = NativeStore(LocalStorage(folder / "store"))
    return store.manifest(newest_whole(store)[0].facts.epoch).log_records


def ring(folder: Path, name: str = "ring", head: str = "", epochs: int | None = None, **more: object) -> None:
    path = folder / "job.yaml"
    path.write_text(RING.format(ring=name, head=head))
    parsed = parse_job(path)
    services = []

    def progress(p: object) -> None:
        enough = epochs is not None and p.epochs >= epochs and logged(folder)  # type: ignore[attr-defined]
        if enough and services:
            services.pop().request_stop()

    store = NativeStore(LocalStorage(folder / "store")) if (folder / "store").exists() else None
    start = newest_whole(store)[0].facts.epoch if store else None
    options = inline(folder, **{"from_epoch": start, "changes": parsed.changes, **more})
    run_job(parsed.topology, str(folder / "store"), options, progress, services.append)


def test_a_log_goes_with_an_edge_whose_ends_have_moved_and_stands_against_one_that_is_gone(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=4, rows=20, rounds=5, turning=True)
    ring(tmp_path, epochs=2)
    assert logged(tmp_path)
    with pytest.raises(NoRecovery) as raised:  # of the ring alone nothing is left, and a log is
        ring(tmp_path, "wheel")
    assert "edge step->ring is no longer there, and 1 records are on their way on it" in str(raised.value)
    assert "--until drained" in (raised.value.hint or "")
    open_gate(tmp_path)
    ring(tmp_path, "wheel", "moved: [{from: ring, to: wheel}]\n")
    last = last_counts(tmp_path, "id")
    assert {id: n for id, n in last.items() if id in counts} == counts
    report = check(LocalStorage(tmp_path / "store"), None, quick=False, progress=lambda read, total: None).report
    assert {row.verdict for row in report.epochs} <= {Status.COMPLETE, Status.INCOMPLETE, Status.ABORTED}


def test_a_rehearsal_refuses_and_says_what_a_run_would(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=2)
    path = job.folder / "job.yaml"
    path.write_text(RENAMED)
    parsed = parse_job(path)
    start = newest_whole(job.store)[0].facts.epoch
    options = inline(job.folder, from_epoch=start, changes=parsed.changes)
    before = job.files()
    (news,) = rehearse(parsed.topology, str(job.folder / "store"), options).news
    with pytest.raises(OtherJob):
        rehearse(parsed.topology, str(job.folder / "store"), inline(job.folder, from_epoch=start))
    assert job.files() == before
    job.run(RENAMED, epochs=1)
    assert job.news == [news]


def test_code_that_has_changed_is_said_by_its_file(job: Job) -> None:
    (job.folder / "mine.py").write_text("import helping\n\n\ndef split(batch):\n    return helping.words(batch)\n")
    (job.folder / "helping.py").write_text("from abscli.engine.functions import words\n")
    (job.folder / "aside.py").write_text("A = 1\n")
    own = AS_IT_WAS.replace("flat_map: words", "flat_map: mine:split")
    job.run(own, epochs=2)
    (job.folder / "aside.py").write_text("A = 2\n")  # which the job does not use
    job.run(own, epochs=1)
    assert not job.news
    (job.folder / "helping.py").write_text("from abscli.engine.functions import words  # as it was\n")
    attempt = job.store.attempts()[-1]
    epoch = newest_whole(job.store)[0].facts.epoch
    job.run(own, epochs=1)
    assert job.news == [OtherCode(epoch, attempt.attempt, ("helping.py",))]
    assert attempt.code is not None
    assert set(attempt.code) == {"mine.py", "helping.py"}
    job.run(AS_IT_WAS)
    assert [news.files for news in job.news if isinstance(news, OtherCode)] == [("helping.py", "mine.py")]


def test_an_operator_that_is_there_is_neither_moved_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text(LINES, WORDS, COUNTS, OUT, head="moved: [{from: counts, to: out}]\nremoved: [words]\n"))
    with pytest.raises(BadFile) as raised:
        parse_job(path)
    assert [error.message for error in raised.value.mistakes] == [
        "moved: counts is an operator of this file, so it has not moved",
        "removed: words is an operator of this file",
    ]


class Killed(BaseException):
    """The process has ended here."""


@pytest.mark.parametrize("place", ["put_part", "complete", "reveal"])
def test_a_run_that_ends_while_its_generation_begins_leaves_nothing_behind_that_matters(
    job: Job, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = job.run(AS_IT_WAS, epochs=3)

    def end(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if place == "put_part":
            patch.setattr(generation, "put_part", end)
        elif place == "complete":
            patch.setattr(journal, "complete", end)
        else:
            patch.setattr(Outputs, "publish", end)
        with pytest.raises(Killed):
            job.run(RENAMED)
    complete = newest_whole(job.store)[0].facts.epoch
    assert complete == first.epoch or place == "reveal"
    job.run(RENAMED if place == "reveal" else RENAMED.replace("tally", "sums"), epochs=1)
    job.run(RENAMED if place == "reveal" else RENAMED.replace("tally", "sums"))
    assert last_counts(job.folder) == job.counts
    job.sound()


def test_old_epochs_of_an_older_generation_go_and_what_is_still_referred_to_stays(job: Job) -> None:
    job.run(AS_IT_WAS, epochs=3)
    job.run(RENAMED, epochs=3, keep=2)
    generations = {job.store.manifest(n).generation for n in job.store.epoch_numbers() if job.store.has_manifest(n)}
    assert generations == {2}
    job.run(RENAMED, keep=2)
    assert last_counts(job.folder) == job.counts
    job.sound()
