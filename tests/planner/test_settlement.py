"""What becomes of a sink's parts: no part is lost, and exactly what belongs to the line is visible."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from abscli.planner.settlement import SinkFacts, Wanted, settle, with_makers
from formats.native.facts import SinkFile
from formats.native.sink import UNNAMED, PartId, Stretch, part_name

IDS = ("a" * 32, "b" * 32, "c" * 32)
SIZE = 7


def file(name: str, size: int = SIZE) -> SinkFile:
    return SinkFile("out", name, size, 1, "0" * 64)


@st.composite
def lines(draw: st.DrawFn) -> tuple[Stretch, ...]:
    """A line over the epochs 1 to 9: some stretches, each of one attempt, newest first."""
    ends = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
    starts = [1, *(end + 1 for end in ends)]
    ids = draw(st.permutations(IDS))
    return tuple(Stretch(ids[i], starts[i], end) for i, end in enumerate(ends))[::-1]


def on(line: tuple[Stretch, ...], name: str) -> str | None:
    epoch = int(name[11:21])
    return next((stretch.id for stretch in line if stretch.has(epoch)), None)


@given(data=st.data(), showing=lines(), line=lines())
def test_exactly_what_belongs_to_the_line_is_visible_afterwards(
    data: st.DataObject, showing: tuple[Stretch, ...], line: tuple[Stretch, ...]
) -> None:
    names = [part_name(0, epoch) for epoch in range(1, 10)]
    visible = {name for name in names if data.draw(st.booleans())}
    made = {PartId(on(showing, name) or "", name) for name in visible}
    hidden: dict[PartId, str] = {}
    for id in IDS:
        for name in names:
            place = data.draw(st.sampled_from(["", "", "staged", "superseded"]))
            if place and (id, name) not in made:
                hidden[PartId(id, name)] = place
    staged = {identity: SIZE for identity, place in hidden.items() if place == "staged"}
    superseded = {identity: SIZE for identity, place in hidden.items() if place == "superseded"}
    there = made | staged.keys() | superseded.keys()
    above = data.draw(st.integers(0, 9))
    due = {
        PartId(id, name): file(name)
        for name in names
        if (id := on(line, name)) is not None and (id, name) in there and int(name[11:21]) > above
        and data.draw(st.booleans())
    }  # fmt: skip
    wanted = Wanted(line, due, above, due, frozenset(IDS))
    plan = settle(SinkFacts(with_makers(dict.fromkeys(visible, SIZE), showing), staged, superseded), wanted)
    assert plan.missing == ()

    away = {PartId(on(showing, name) or "", name) for _, name in plan.away}
    strange = {(id, name) for id, name in away if on(line, name) == id}
    assert {(UNNAMED if (id, name) in strange else id, name) for id, name in away} == set(plan.away)
    shown = (made - away) | set(plan.back) | set(plan.reveal)
    older = {
        (id, name) for id, name in there if int(name[11:21]) <= above and on(line, name) == id
    }
    assert shown == due.keys() | older
    assert len({name for _, name in shown}) == len(shown)

    # What is of the line, and named by none of its manifests, never can be.
    assert all(on(line, part.name) == part.attempt_id and part.epoch.number > above for part in plan.strays)
    assert not [part for part in plan.aside if on(line, part.name) == part.attempt_id]
    strange |= set(plan.strays)
    aside = (superseded.keys() - set(plan.back)) | away | set(plan.aside) | set(plan.strays)
    waiting = staged.keys() - set(plan.reveal) - set(plan.aside) - set(plan.strays)
    assert shown | aside | waiting == there
    after = SinkFacts(
        with_makers(dict.fromkeys((name for _, name in shown), SIZE), line),
        dict.fromkeys(waiting, SIZE),
        dict.fromkeys((part for part in aside - strange if part[0]), SIZE),
    )
    again = settle(after, wanted)
    assert (again.away, again.back, again.reveal, again.aside, again.strays, again.missing) == ((),) * 6
    # Also when the manifests that could have named them are gone.
    later = settle(after, dataclasses.replace(wanted, named_above=9))
    assert not strange & {*later.back, *later.reveal}


def test_a_part_that_is_due_and_has_another_size_or_is_nowhere_stands_against_it() -> None:
    line = (Stretch(IDS[0], 1, 3),)
    short, gone = part_name(0, 1), part_name(0, 2)
    due = {PartId(IDS[0], short): file(short), PartId(IDS[0], gone): file(gone)}
    sink = SinkFacts(with_makers({short: SIZE - 1}, line), {}, {})
    missing = settle(sink, Wanted(line, due, 0, due, frozenset(IDS))).missing
    assert [(one.file.name, one.size) for one in missing] == [(short, SIZE - 1), (gone, None)]


def test_what_an_attempt_whose_epochs_cannot_be_read_has_staged_stays_where_it_is() -> None:
    name = part_name(0, 4)
    sink = SinkFacts({}, {PartId(IDS[0], name): SIZE, PartId(IDS[1], name): SIZE}, {})
    plan = settle(sink, Wanted((), {}, 0, {}, frozenset({IDS[1]})))
    assert plan.aside == ((IDS[1], name),)
