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


def test_a_cut_joins_the_copies_of_an_epoch_and_says_if_some_are_missing() -> None:
    assert ">cut 1</text>" in spacetime_svg(ORPHAN)
    kept = tuple(moment for moment in ORPHAN.moments if (moment.task, moment.kind) != ("words/1", "copy"))
    fewer = dataclasses.replace(ORPHAN, moments=kept)
    assert ">cut 1, 3 of 4</text>" in spacetime_svg(fewer)
    assert spacetime_svg(fewer).count('class="band"') == 1
    assert ">cut 1</text>" in spacetime_svg(ORPHAN, max_steps=8)  # of which it shows two copies: none is missing


def test_labels_of_events_do_not_cover_each_other() -> None:
    moments = tuple(Moment(step, "a", f"a rather long label {step}", "restore") for step in range(30))
    root = ElementTree.fromstring(spacetime_svg(Diagram("t", ("a",), moments, (), None)))
    labels = [text for text in root.iter(f"{SVG}text") if (text.text or "").startswith("a rather")]
    areas = [(float(t.get("x") or 0), float(t.get("y") or 0), len(t.text or "") * 6) for t in labels]
    for number, (x, y, wide) in enumerate(areas):
        for other_x, other_y, _ in areas[number + 1 :]:
            assert abs(y - other_y) > 11 or abs(other_x - x) >= wide


def test_what_is_not_received_is_named() -> None:
    assert "not received: w, lines/0 to words/1, sent at 12" in spacetime_text(ORPHAN)
    assert "sent at step 12, not received" in spacetime_svg(ORPHAN)
    assert spacetime_svg(ORPHAN).count('<circle class="box"') == 2  # it, and the restore


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
        (lambda: Message("a", "b", 3, 2, "x"), "sent at step 3 and received at 2"),
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
