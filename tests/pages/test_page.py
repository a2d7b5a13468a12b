"""The page of a report: one file that asks nobody for anything, in which every name is text, the same for the same
facts, and not large."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from abscli.pages import drawings
from abscli.pages.facts import Report, SplitRewind, State
from abscli.pages.graph import EDGES, NODES, graph_of
from abscli.pages.html import html_of, json_of
from abscli.pages.moments import local_time
from abscli.pages.resume import Maker
from abscli.pages.store_report import EPOCHS, Gathered, store_report
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.text.cells import broken
from abscli.text.columns import age
from abscli.text.validate import Advice
from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.timestamps import unix_time
from formats.view import ChannelFacts, ChannelTable, Repeat, Status
from tests.support.pages import MIDDLE, Taken, gathered
from tests.support.schemas import checked

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egpj.exe\u2066",
    "a\0b\x1b[31m\u2028c",
    "]]>&lt;&#0;",
    "\udcff\udc80",
    "אבג ا",
    "https://example.org/x.js",
)


@pytest.fixture(scope="module")
def report() -> Report:
    return store_report(gathered(120, 8))


def test_a_page_of_nothing_is_small() -> None:
    page = html_of(store_report(gathered(0)))
    assert len(page) < 150_000
    assert "there is no epoch yet." in Taken.of(page).text


def test_a_page_of_a_thousand_epochs_of_a_hundred_tasks_is_not_large() -> None:
    page = html_of(store_report(gathered(1000, 100)))
    assert len(page) < 2_000_000
    assert {f"epoch-{number}" for number in range(1, 1001)} <= set(Taken.of(page).ids)


def text_of(report: Report) -> str:
    return " ".join(Taken.of(html_of(report)).text.split())


def with_times(facts: Gathered, triggered: str | None, modified: str | None = None) -> Gathered:
    """The same with another time of the newest epoch."""
    *others, last = facts.report.epochs
    epochs = (*others, changed(last, triggered=triggered, modified=modified))
    return replace(facts, report=changed(facts.report, epochs=epochs))


def test_the_age_of_the_newest_restorable_epoch_stands_beside_the_verdict(report: Report) -> None:
    page = html_of(report).decode()
    assert '<p class="amount">11 h 58 min old</p>' in page
    assert page.index('class="amount"') < page.index('id="next"')
    assert report.newest is not None
    assert (report.newest.epoch, report.newest.source, report.newest.age) == (120, "triggered", 43080.0)


def test_a_modification_time_is_no_time_of_an_epoch() -> None:
    text = text_of(store_report(with_times(gathered(3), None, "2026-01-02T11:15:00.000Z")))
    assert "45 min old" in text
    assert "file written 2026-01-02 11:15:00 UTC (12:15:00 +01:00 local). The epoch records no time" in text


@pytest.mark.parametrize(
    ("triggered", "message"),
    [(None, "age not known its time is not known"), ("yesterday", "age not known its time is not known"),
     ("2026-01-02T12:00:01.000Z", "later than this report, so a clock is wrong")],
)  # fmt: skip
def test_an_age_that_is_not_known_is_not_invented(triggered: str | None, message: str) -> None:
    report = store_report(with_times(gathered(3), triggered))
    assert report.newest is not None
    assert report.newest.age is None
    assert message in text_of(report)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (11_520, "3 h 12 min"),
     (86_400, "1 d"), (450_000, "5 d 5 h")],
)  # fmt: skip
def test_an_age_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_local_time_follows_the_change_to_summer_time() -> None:
    """UTC offsets in minutes: 60 until 01:00 UTC on 29 March 2026, then 120."""
    change = unix_time("2026-03-29T01:00:00Z")
    assert change is not None
    maker = Maker("abs", "2026-03-29T02:00:00.000Z", lambda at: 120 if at >= change else 60)
    made = maker.made(["2026-03-29T00:59:59.000Z", None, "no time", "2026-03-29T01:00:00.000Z"])
    assert made.utc_offsets == (("2026-03-29T00:59:59.000Z", 60), ("2026-03-29T01:00:00.000Z", 120))
    assert local_time(made, "2026-03-28T12:00:00.000Z") == "2026-03-28 13:00:00 +01:00"
    assert local_time(made, "2026-03-29T00:59:59.000Z") == "2026-03-29 01:59:59 +01:00"
    assert local_time(made, "2026-03-29T01:00:00.000Z") == "2026-03-29 03:00:00 +02:00"
    assert local_time(made, "no time") is None


def test_times_in_tables_have_the_local_time_as_tooltip(report: Report) -> None:
    row = re.search(r'(?s)<tr id="epoch-1".*?</tr>', html_of(report).decode())
    assert row is not None
    assert (
        '<time datetime="2026-01-02T00:00:01.000Z" title="2026-01-02 01:00:01 +01:00 where the report was made">'
        "2026-01-02 00:00:01</time>"
    ) in row[0]


def test_bars_have_an_axis_with_units(report: Report) -> None:
    page = html_of(report).decode()
    strip = re.search(r'(?s)<svg class="strip".*?</svg>', page)
    assert strip is not None
    assert re.findall(r'class="scale"[^>]*>([^<]*)', strip[0]) == ["0 s", "500 ms", "1.0 s"]
    assert '<span class="scale"><span>0 s</span><span>690 ms</span></span>' in page
    assert '<span class="scale"><span>Epoch 1</span><span>Epoch 120</span></span>' in page


def test_without_durations_bars_have_no_axis() -> None:
    facts = gathered(3)
    report = store_report(replace(facts, epochs=[changed(one, duration=None) for one in facts.epochs], times={}))
    assert 'class="scale"' not in drawings.strip(report.epochs, report.unit)
    assert "durations are not recorded" in text_of(report)


@pytest.mark.parametrize(
    ("value", "end"),
    [(0.69, 1.0), (1.0, 1.0), (0.0031, 0.005), (11, 20), (119, 200), (121, 300), (7199, 12_000), (7200, 7200),
     (8000, 18_000)],
)  # fmt: skip
def test_the_end_of_an_axis_is_a_round_number_of_its_unit(value: float, end: float) -> None:
    assert drawings.rounded_up(value) == pytest.approx(end)


def test_a_restore_rolls_back_what_follows_and_reads_it_again() -> None:
    facts = gathered(5, 4)
    behind = gathered(3, 4)
    assert behind.detail is not None
    report = changed(facts.report, restorable=(1, 2, 3))
    resumed = store_report(
        replace(facts, report=report, detail=behind.detail, later=facts.detail, output=["Sink printed: once."])
    )
    assert resumed.resume is not None
    assert (resumed.resume.rolled_back, resumed.resume.seconds, resumed.resume.records) == ("4-5", 2.0, 20)
    assert resumed.resume.splits == (SplitRewind("lines/0", "in/a.txt", 5000, 3000),)
    text = text_of(resumed)
    assert "If you restore epoch 3 Rolled back: epochs 4-5, up to 2.0 s newer." in text
    assert "Read again: 20 records that later epochs show as read, and all input after these." in text
    assert "Output: Sink printed: once." in text


def test_without_newer_positions_the_input_that_is_read_again_is_not_known(report: Report) -> None:
    assert report.resume is not None
    assert report.resume.records is None
    assert "How much that is, is not known: no newer source positions are known." in text_of(report)


def test_records_that_count_twice_are_those_of_the_check() -> None:
    facts = gathered(1)
    (epoch,) = facts.report.epochs
    repeat = Repeat(ChannelId(TaskId("lines", 0), TaskId(MIDDLE, 0)), 3)
    report = changed(facts.report, epochs=(changed(epoch, policy="at-least-once", repeats=(repeat, repeat)),))
    text = text_of(store_report(replace(facts, report=report)))
    assert "Counted twice in state: 6 records, because the epoch was taken at-least-once." in text


def test_every_problem_has_its_runbook(report: Report) -> None:
    assert report.problems
    for problem in report.problems:
        assert f"Runbook: {problem.runbook.title}, {problem.runbook.location}" in text_of(report)


def test_a_page_uses_the_word_of_its_system() -> None:
    facts = replace(gathered(97), format="spark", advice=Advice("Checkpoints", unit="batch"))
    text = text_of(store_report(facts))
    assert "newest restorable batch 96" in text
    assert "epoch" not in text.replace("epochs/97/counts.parquet", "").lower()


def test_a_name_breaks_between_words() -> None:
    assert broken("Average per item and second", 26, 3) == ["Average per item and", "second"]
    assert broken("average_per_item_and_second", 26, 3) == ["average_per_item_and_", "second"]


def test_of_more_epochs_the_newest_are_listed_and_the_page_says_so() -> None:
    report = store_report(gathered(EPOCHS + 7, 3))
    assert [report.epochs[0].epoch, report.epochs[-1].epoch, report.epochs_count] == [8, EPOCHS + 7, EPOCHS + 7]
    assert "and 7 more" in Taken.of(html_of(report)).text


def test_the_same_facts_give_the_same_bytes(report: Report) -> None:
    assert html_of(report) == html_of(store_report(gathered(120, 8)))


def test_the_facts_stand_in_the_page(report: Report) -> None:
    (facts,) = Taken.of(html_of(report)).texts["facts"]
    assert checked(facts) == json_of(report) == json.loads(json.dumps(json_of(report)))


def test_the_page_asks_nobody_for_anything(report: Report) -> None:
    taken = Taken.of(html_of(report))
    for tag, attributes in taken.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "use", "image")
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "style", "action", "data", "xlink:href", "ping"), (tag, name)
            assert not name.startswith("on"), (tag, name)
            assert name != "href" or (value or "").startswith("#"), (tag, value)
    for text in (*taken.texts["style"], *taken.texts["script"]):
        assert not re.search(r"url\(|@import|https?:|fetch\(|XMLHttpRequest|WebSocket|import\(", text)


def test_the_policy_allows_its_own_style_and_script_and_nothing_else(report: Report) -> None:
    taken = Taken.of(html_of(report))
    (policy,) = [a["content"] for tag, a in taken.tags if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    digests = {
        name: base64.b64encode(hashlib.sha256("".join(taken.texts[name]).encode()).digest()).decode()
        for name in ("style", "script")
    }
    assert dict(rule.strip().split(" ", 1) for rule in policy.split(";")) == {
        "default-src": "'none'", "style-src": f"'sha256-{digests['style']}'",
        "script-src": f"'sha256-{digests['script']}'", "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert len([tag for tag, _ in taken.tags if tag == "style"]) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_wherever_it_stands(name: str) -> None:
    plain = Taken.of(html_of(store_report(gathered(100, 5))))
    facts = gathered(100, 5, names=(f"a{name}", f"b{name}", f"c{name}"), job=name, path=name, message=name)
    page = html_of(replace_text(store_report(facts), name))
    taken = Taken.of(page)
    assert [tag for tag, _ in taken.tags if tag in ("script", "style", "img")] == ["style", "script", "script"]
    assert {tag for tag, _ in taken.tags} <= {tag for tag, _ in plain.tags} | {"pre"}
    assert not set(re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", page.decode()))
    (text,) = taken.texts["facts"]
    assert json.loads(text)["job"] == name
    assert taken.texts["script"] == plain.texts["script"]


def replace_text(report: Report, name: str) -> Report:
    return changed(report, text=name, notes=(name,), recoveries=(name,), next=(f"abs validate {name}",))


def test_what_is_not_known_is_a_question_mark_and_never_a_nought() -> None:
    facts = gathered(3, 3)
    unknown = [changed(one, duration=None, state_bytes=None, bytes=None) for one in facts.epochs[:1]]
    report = store_report(replace(facts, epochs=[*unknown, *facts.epochs[1:]]))
    assert json_of(report)["epochs"][0]["duration"] is None
    row = re.search(r'(?s)<tr id="epoch-1".*?</tr>', html_of(report).decode())
    assert row is not None
    assert row[0].count('unknown" data-key="">?</td>') == 3


def test_a_column_of_which_nothing_is_known_is_left_out_and_named() -> None:
    facts = gathered(2, 3)
    report = store_report(replace(facts, epochs=[changed(one, duration=None) for one in facts.epochs], times={}))
    text = Taken.of(html_of(report)).text
    assert "not known here: Took, Where the time went" in text


def test_the_time_of_an_epoch_is_that_of_its_slowest_task_and_the_rest() -> None:
    report = store_report(gathered(1, 20))
    times = report.epochs[0].times
    assert times is not None
    assert report.epochs[0].duration == pytest.approx(0.21)
    spent = (times.alignment or 0) + (times.sync or 0) + (times.async_ or 0) + (times.other or 0)
    assert spent == pytest.approx(0.21)


@pytest.mark.parametrize(
    ("sent", "received", "logged", "policy", "kept"),
    [(10, 8, 2, "aligned", True), (10, 8, 1, "aligned", False), (10, 11, 0, "aligned", False),
     (10, 11, 0, "at-least-once", True), (10, 9, 0, "at-least-once", False), (10, None, 0, "aligned", None)],
)  # fmt: skip
def test_a_channel_keeps_the_law_or_is_named(
    sent: int, received: int | None, logged: int, policy: str, kept: bool | None
) -> None:
    facts = gathered(1, 3)
    assert facts.detail is not None
    one = ChannelFacts(ChannelId(TaskId("lines", 0), TaskId(MIDDLE, 0)), sent, received, logged)
    report = store_report(replace(facts, detail=changed(facts.detail, channels=ChannelTable((one,)), policy=policy)))
    assert report.depth is not None
    assert [edge.consistent for edge in report.depth.channels] == [kept]
    inconsistent = [channel.channel for channel in report.depth.inconsistent_channels]
    assert inconsistent == ["lines/0->counts/0"] * (kept is False)


@pytest.mark.parametrize(
    ("verdicts", "restorable", "state", "headline"),
    [
        ("", (), State.UNKNOWN, "there is no epoch yet."),
        ("c", (1,), State.OK, "newest restorable: epoch 1."),
        ("ccr", (1, 2), State.OK, "newest restorable: epoch 2. Epoch 3 is in progress."),
        (
            "cia", (1,), State.OK,
            "newest restorable: epoch 1. Not restorable: epoch 2 (incomplete), epoch 3 (aborted).",
        ),
        ("cd", (1,), State.DAMAGED, "epoch 2. Newest restorable: epoch 1."),
        ("dc", (2,), State.DAMAGED, "epoch 1. Newest restorable: epoch 2."),
        ("dd", (), State.DAMAGED, "epochs 1-2. No epoch can be restored."),
        ("i", (), State.NOT_RESTORABLE, "no epoch is complete."),
        ("c", (), State.UNKNOWN, "it is not known whether any epoch can be restored."),
    ],
)
def test_how_a_store_stands_is_said_first(
    verdicts: str, restorable: tuple[int, ...], state: State, headline: str
) -> None:
    words = {one.value[0]: one for one in (Status.COMPLETE, Status.INCOMPLETE, Status.ABORTED, Status.DAMAGED)}
    words["r"] = Status.IN_PROGRESS
    epochs = tuple(EpochReport(i, words[one], (), ()) for i, one in enumerate(verdicts, 1))
    checked = replace(gathered(0), quick=False, report=StoreReport(epochs, (), (), restorable))
    report = store_report(checked)
    assert (report.state, report.summary) == (state, headline)
    unread = store_report(replace(checked, quick=True))
    assert (unread.state is State.UNVERIFIED) == (state is State.OK), "nobody vouches for files that were not read"


def test_what_damages_an_epoch_that_was_whole_comes_before_what_was_never_complete() -> None:
    epochs = (
        EpochReport(1, Status.DAMAGED, (Finding(Code.MISSING_FILE, None, None, "a", "is gone"),), ()),
        EpochReport(2, Status.INCOMPLETE, (Finding(Code.MISSING_ACK, TaskId("a", 0), None, None, "no ack"),), ()),
    )
    harmless = Finding(Code.UNREFERENCED_FILE, None, None, "b", "no epoch needs it")
    report = store_report(replace(gathered(0), report=StoreReport(epochs, (harmless,), (), ())))
    assert [trouble.code for trouble in report.problems] == ["missing-file", "missing-ack", "unreferenced-file"]


def test_what_is_damaged_is_lit_up_in_the_graph() -> None:
    report = store_report(gathered(98, 5))
    assert report.graph is not None
    assert [(node.id, node.highlight) for node in report.graph.nodes] == [
        ("lines", None), ("counts", "damaged"), ("printed", None),
    ]  # fmt: skip
    page = html_of(report).decode()
    assert 'class="node damaged"' in page
    assert "size-mismatch in epoch 97" in page


def test_a_graph_that_is_too_large_has_what_is_lit_up() -> None:
    ids = [f"o{i}" for i in range(NODES + 50)]
    edges = tuple(Edge(a, b, Partition.REBALANCE) for a, b in itertools.pairwise(ids))
    topology = Topology("large", tuple(Operator(id, Kind.MAP, 1, 1) for id in ids), edges)
    graph = graph_of(topology, (), (), {ids[-1]: ("damaged", "x")}, {})
    assert len(graph.nodes) == NODES
    assert graph.nodes[0].id == ids[-1]
    assert not graph.links
    assert f"{NODES + 50:,} operators" in (graph.note or "")
    assert EDGES > NODES


def test_without_a_job_graph_the_channels_tell_the_edges_and_a_cycle_is_drawn() -> None:
    facts = gathered(1, 4)
    assert facts.detail is not None
    back = ChannelFacts(ChannelId(TaskId(MIDDLE, 0), TaskId("lines", 0)), 1, 1, 0)
    table = ChannelTable((*facts.detail.channels, back))
    report = store_report(replace(facts, topology=None, detail=changed(facts.detail, channels=table)))
    assert report.graph is not None
    assert sum(link.back_edge for link in report.graph.links) == 1
    assert "does not keep the job graph" in (report.graph.note or "")
    assert 'class="edge back"' in html_of(report).decode()
