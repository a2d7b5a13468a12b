"""Space-time diagrams: every event and message is there, lines fit, the violation comes last, names do no harm."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.draw.spacetime_cuts import against, cuts, logged, stretches
from abscli.draw.spacetime_layout import laid_out
from abscli.draw.spacetime_svg import spacetime_svg
from abscli.sim.diagram import COORDINATOR, KINDS, Diagram, Message, Moment
from abscli.text.cells import cells, shortened
from abscli.text.spacetime import LEAST, spacetime_text
from tests.support.sim.diagrams import ORPHAN, TOKEN

DATA = Path(__file__).parents[1] / "data" / "spacetime"
SVG = "{http://www.w3.org/2000/svg}"
RENDERERS = {
    "80.txt": lambda diagram: spacetime_text(diagram, width=80),
    "120.txt": lambda diagram: spacetime_text(diagram, width=120),
    "ascii.txt": lambda diagram: spacetime_text(diagram, width=60, ascii=True),
    "svg": spacetime_svg,
}


@st.composite
def diagrams(draw: st.DrawFn) -> Diagram:
    """Any valid diagram; every label begins with a sign and a number of its own, `m07` or `w07`."""
    tasks = [f"{'task' * draw(st.integers(0, 5))}t/{number}" for number in range(draw(st.integers(1, 8)))]
    places = st.sampled_from([*tasks, *[COORDINATOR] * draw(st.integers(0, 1))])
    kinds, epochs = st.sampled_from(sorted(KINDS)), st.none() | st.integers(1, 9)
    tail = st.text(st.characters(exclude_categories=["C", "Z", "M"], exclude_characters="mw"), max_size=25)
    moments = [
        Moment(draw(st.integers(0, 15)), draw(places), f"m{number:02}{draw(tail)}", draw(kinds), draw(epochs))
        for number in range(draw(st.integers(0, 12)))
    ]
    messages = []
    for number in range(draw(st.integers(0, 12))):
        sent, late = draw(st.integers(0, 15)), draw(st.none() | st.integers(0, 5))
        label = f"w{number:02}{draw(tail)}"
        received = None if late is None else sent + late
        epoch, known = draw(st.none() | st.integers(1, 9)), draw(st.booleans())
        messages.append(Message(draw(places), draw(places), sent, received, label, epoch, known))
    violation = draw(st.none() | st.text(min_size=1, max_size=200))
    return Diagram(f"run {draw(tail)}", tuple(tasks), tuple(moments), tuple(messages), violation)


@pytest.mark.parametrize("name", ["token", "orphan"])
@pytest.mark.parametrize("form", RENDERERS)
def test_each_form_is_its_golden_text(name: str, form: str, request: pytest.FixtureRequest) -> None:
    text = RENDERERS[form]({"token": TOKEN, "orphan": ORPHAN}[name])
    golden = DATA / f"{name}.{form}"
    if request.config.getoption("--rewrite"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@given(diagrams(), st.integers(40, 160), st.booleans())
def test_every_event_and_message_is_in_the_text_and_lines_fit(diagram: Diagram, width: int, ascii: bool) -> None:
    text = spacetime_text(diagram, width=width, ascii=ascii)
    for moment in diagram.moments:
        assert moment.label[:3] in text
    for message in diagram.messages:
        once = message.received is None or message.received == message.sent
        assert text.count(message.label[:2]) >= (1 if once else 2)  # ten columns may leave no more of a wide label
    lines = text.splitlines()
    assert len(lines) == text.count("\n")
    assert max(map(cells, lines)) <= max(width, 6 + LEAST * len(diagram.lines()))
    assert text.replace("\n", "").isprintable()
    assert text.isascii() or not ascii
    drawn, _, verdict = text.partition("\n\nVIOLATION:")
    assert bool(verdict) == (diagram.violation is not None)
    assert all(label[:3] in drawn for label in (m.label for m in diagram.moments))
    rows = drawn[drawn.index("\nstep ") :].partition("\nnot received")[0].splitlines()[2:]
    assert [int(row[:4]) for row in rows if row[:4].strip()] == diagram.steps()


@given(diagrams(), st.none() | st.integers(1, 10))
def test_every_event_and_message_is_in_the_picture(diagram: Diagram, max_steps: int | None) -> None:
    picture = spacetime_svg(diagram, max_steps=max_steps)
    assert picture.isascii()
    root = ElementTree.fromstring(picture)
    shown = set(diagram.steps() if max_steps is None else diagram.steps()[-max_steps:])
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    for moment in diagram.moments:
        assert any(f": {moment.label[:3]}" in title for title in titles) == (moment.step in shown)
    for message in diagram.messages:
        found = [title for title in titles if title.startswith(message.label[:3])]
        assert len(found) == (bool({message.sent, message.received} & shown))
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("x") or -1) <= width
        assert 0 <= float(element.get("y") or -1) <= height
        if not {"middle", "end"} & set((element.get("class") or "").split()):
            size = {"title": 15, "faint": 11, "wrong-text": 11}.get(element.get("class") or "", 10)
            assert float(element.get("x") or 0) + cells(element.text or "") * size * 0.5 <= width + 20


@given(diagrams(), st.integers(1, 8))
def test_a_window_keeps_the_last_steps_and_counts_the_others(diagram: Diagram, max_steps: int) -> None:
    text, picture = spacetime_text(diagram, max_steps=max_steps), spacetime_svg(diagram, max_steps=max_steps)
    left_out = max(0, len(diagram.steps()) - max_steps)
    for drawn in (text, picture):
        assert (f"{left_out} earlier step" in drawn) == (left_out > 0)
    for moment in diagram.moments:
        assert (moment.label[:3] in text) == (moment.step in diagram.steps()[-max_steps:])


def test_a_message_is_drawn_when_it_leaves_and_when_it_arrives() -> None:
    run = Diagram("t", ("a", "b"), (), (Message("a", "b", 1, 3, "barrier 3", 3),), None)
    assert spacetime_text(run, width=44).splitlines()[3:] == [
        "step  a                  b",
        "   1  ●┄barrier 3┄┄▷     │",
        "   3  ├──barrier 3 @1───▶│",
    ]


def test_a_message_that_arrives_at_once_is_one_arrow() -> None:
    run = Diagram("t", ("a", "b"), (), (Message("a", "b", 1, 1, "barrier 3", 3),), None)
    assert spacetime_text(run, width=40).splitlines()[2:] == [
        "step  a                b",
        "   1  ●───barrier 3───▶│",
    ]


def test_an_arrow_crosses_the_lines_that_it_passes() -> None:
    run = Diagram("t", ("a", "b", "c"), (), (Message("c", "a", 1, 1, "ack 3", 3),), None)
    assert spacetime_text(run, width=48, ascii=True).splitlines()[-1] == "   1  |<----------ack 3-----------*"


def test_events_of_a_task_keep_their_order_within_a_step() -> None:
    moments = (Moment(1, "a", "first", "record"), Moment(1, "b", "other", "record"), Moment(1, "a", "second", "ack"))
    run = Diagram("t", ("a", "b"), moments, (Message("a", "b", 1, 2, "third"),), None)
    text = spacetime_text(run)
    assert text.index("first") < text.index("second") < text.index("third")
    assert "● first" in text.splitlines()[4]
    assert "● other" in text.splitlines()[4]


def test_a_task_that_has_crashed_has_no_line_until_it_is_restored() -> None:
    moments = tuple(
        Moment(step, task, kind, kind)
        for step, task, kind in (
            (1, "b", "crash"), (2, "a", "record"), (3, "b", "restore"), (4, "a", "record"),
        )
    )  # fmt: skip
    run = Diagram("t", ("a", "b"), moments, (), None)
    for max_steps in (None, 3):
        at = {line.split()[0]: line for line in spacetime_text(run, max_steps=max_steps).splitlines() if line}
        assert "│" not in at["2"]
        assert "│" in at["4"]
    assert spacetime_svg(run).count('class="thin dotted"') == 1
    assert spacetime_svg(run).count('class="undone"') == 1 + 1  # with the sign that explains it


def test_a_cut_joins_the_copies_of_an_epoch_and_says_if_some_are_missing() -> None:
    assert ">cut 1</text>" in spacetime_svg(ORPHAN)
    kept = tuple(moment for moment in ORPHAN.moments if (moment.task, moment.kind) != ("words/1", "copy"))
    fewer = dataclasses.replace(ORPHAN, moments=kept)
    assert ">cut 1, 3 of 4</text>" in spacetime_svg(fewer)
    assert spacetime_svg(fewer).count('class="band"') == 1 + 1
    assert ">cut 1</text>" in spacetime_svg(ORPHAN, max_steps=8)  # of which it shows two copies: none is missing


def test_a_cut_whose_first_copies_are_left_out_comes_in_from_the_edge() -> None:
    layout = laid_out(ORPHAN, 8)
    (cut,) = cuts(ORPHAN, layout)
    assert [place[0] == layout.ends[0] for place in cut.places] == [True, False, False]
    assert [place[1] for place in cut.places] == [layout.tasks[task] for task in ("words/0", "words/1", "counts/0")]


def test_a_cut_expects_no_copy_of_a_task_that_a_rescale_has_removed_or_not_added_yet() -> None:
    moments = (
        Moment(1, "a", "copy 1", "copy", 1), Moment(2, "b", "copy 1", "copy", 1),
        Moment(3, "a", "rescale", "crash"), Moment(3, "b", "rescale", "crash"),
        Moment(4, "a", "from 1", "restore", 1), Moment(4, "c", "from 1", "restore", 1),
        Moment(5, "a", "copy 2", "copy", 2), Moment(6, "c", "copy 2", "copy", 2),
    )  # fmt: skip
    run = Diagram("t", ("a", "b", "c"), moments, (), None)
    assert [(cut.copied, cut.expected) for cut in cuts(run, laid_out(run, 20))] == [(2, 2), (2, 2)]


def test_the_ground_is_what_a_snapshot_keeps_and_what_a_failure_undoes() -> None:
    moments = (
        Moment(1, "a", "copy 1", "copy", 1), Moment(2, COORDINATOR, "complete 1", "complete", 1),
        Moment(3, "a", "copy 2", "copy", 2), Moment(4, "a", "lost", "crash"), Moment(5, "a", "from 1", "restore", 1),
        Moment(6, "a", "copy 3", "copy", 3), Moment(7, COORDINATOR, "complete 3", "complete", 3),
        Moment(8, "a", "copy 4", "copy", 4),
    )  # fmt: skip
    run = Diagram("t", ("a",), moments, (), None)
    layout = laid_out(run, 20)
    x = layout.x
    assert [(part.start, part.end, part.epoch) for part in stretches(run, layout)] == [
        (layout.ends[0], x(1), 1), (x(1), x(4), None), (x(5), x(6), 3),
    ]  # fmt: skip


def test_what_passes_a_cut_is_logged_or_goes_backwards() -> None:
    moments = (
        Moment(3, "a", "copy 1", "copy", 1), Moment(4, "b", "copy 1", "copy", 1), Moment(5, "b", "log 1", "log"),
        Moment(9, "b", "copy 2", "copy", 2), Moment(6, "a", "copy 2", "copy", 2),
    )  # fmt: skip
    before, on_its_way, behind = (Message("a", "b", *steps, "r") for steps in ((1, 2), (1, 5), (7, 8)))
    unlogged = Message("a", "b", 2, 7, "r")
    run = Diagram("t", ("a", "b"), moments, (before, on_its_way, behind, unlogged), None)
    assert logged(run, run.messages) == {on_its_way: 1}
    assert against(run, run.messages) == {behind: 2}
    assert "logged for epoch 1" in spacetime_svg(run)
    assert "passes cut 2 backwards" in spacetime_svg(run)


def test_steps_with_records_alone_are_pressed_together_and_marked() -> None:
    moments = (Moment(0, "a", "copy 1", "copy", 1), Moment(50, "a", "copy 2", "copy", 2))
    messages = tuple(Message("a", "b", step, step + 1, "r") for step in range(1, 48))
    layout = laid_out(Diagram("t", ("a", "b"), moments, messages, None), 100)
    (pressed,) = layout.pressed
    assert pressed.count == 48
    assert (layout.x(48) - layout.x(1)) / 47 < (layout.x(50) - layout.x(48)) / 10
    assert "48 steps, pressed together" in spacetime_svg(Diagram("t", ("a", "b"), moments, messages, None))


def test_what_happens_to_all_at_once_is_said_once() -> None:
    tasks = tuple(f"t/{number}" for number in range(9))
    moments = tuple(Moment(step, task, "rescale", "crash") for step in (1, 40) for task in tasks)
    padding = tuple(Moment(step, tasks[0], "r", "record") for step in range(2, 39))
    assert spacetime_svg(Diagram("t", tasks, (*moments, *padding), (), None)).count(">rescale</text>") == 2


def test_labels_of_events_do_not_cover_each_other() -> None:
    moments = tuple(Moment(step, "a", f"a rather long label {step}", "restore") for step in range(30))
    root = ElementTree.fromstring(spacetime_svg(Diagram("t", ("a",), moments, (), None)))
    labels = [text for text in root.iter(f"{SVG}text") if (text.text or "").startswith("a rather")]
    areas = [(float(t.get("x") or 0), float(t.get("y") or 0), len(t.text or "") * 6) for t in labels]
    for number, (x, y, wide) in enumerate(areas):
        for other_x, other_y, _ in areas[number + 1 :]:
            assert abs(y - other_y) > 11 or abs(other_x - x) >= wide


def test_the_words_of_a_copy_stand_beside_the_line_of_its_cut() -> None:
    root = ElementTree.fromstring(spacetime_svg(TOKEN))
    words = [float(text.get("x") or 0) for text in root.iter(f"{SVG}text") if "into copy 1" in (text.text or "")]
    (cut,) = cuts(TOKEN, laid_out(TOKEN, 100))
    assert len(words) == len(cut.places) == 2
    assert all(begin > x + 5 for begin, x in zip(sorted(words), sorted(x for x, _ in cut.places), strict=True))


def test_what_is_not_received_is_named() -> None:
    assert "not received: w, lines/0 to words/1, sent at 12" in spacetime_text(ORPHAN)
    assert "sent at step 12, not received" in spacetime_svg(ORPHAN)
    assert spacetime_svg(ORPHAN).count('<circle class="box"') == 3  # it, the restore, and the sign that explains it


def test_names_can_neither_steer_a_terminal_nor_leave_their_text() -> None:
    bad = "\x1b[31m</title><script>\r\n\x00'\""
    message = Message(bad, "日本語/0", 1, 2, bad, 1)
    run = Diagram(bad, (bad, "日本語/0"), (Moment(1, bad, bad, "copy"),), (message,), bad)
    for ascii in (False, True):
        assert not {c for c in spacetime_text(run, ascii=ascii) if not c.isprintable()} - {"\n"}
    root = ElementTree.fromstring(spacetime_svg(run))
    assert not list(root.iter(f"{SVG}script"))


def test_nothing_happened_is_a_diagram_too() -> None:
    for tasks in ((), ("a",)):
        run = Diagram("", tasks, (), (), None)
        assert "step" in spacetime_text(run)
        ElementTree.fromstring(spacetime_svg(run))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Moment(1, "a", "x", "explosion"), "explosion"),
        (lambda: Message("a", "b", 3, 2, "x"), "received at step 2, but sent only at step 3"),
        (lambda: Diagram("t", ("a", "a"), (), (), None), "twice"),
        (lambda: Diagram("t", ("a",), (Moment(1, "b", "x", "log"),), (), None), "no task b"),
        (lambda: Diagram("t", ("a",), (), (Message("a", "z", 1, 2, "x"),), None), "no task z"),
    ],
)
def test_what_does_not_hold_is_no_diagram(make: object, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        make()  # type: ignore[operator]


@given(st.text(max_size=60), st.integers(3, 30))
def test_a_shortened_text_keeps_its_ends_and_fits(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert short == text or (cells(short) <= limit and "…" in short)
    assert cells(text) > limit or short == text


def test_a_trace_of_100_000_steps_is_windowed_in_time() -> None:
    size = 100_000
    tasks = tuple(f"t/{number}" for number in range(6))
    moments = tuple(Moment(step, tasks[step % 6], "record", "record") for step in range(size))
    messages = tuple(Message(tasks[s % 6], tasks[(s + 1) % 6], s, s + 1, str(s)) for s in range(size))
    run = Diagram("long", tasks, moments, messages, "something")
    started = time.process_time()
    assert spacetime_text(run, max_steps=40).count("\n") < 200
    assert spacetime_svg(run, max_steps=40).count("data-from=") <= 41
    assert time.process_time() - started < 5
