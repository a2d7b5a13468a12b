"""Branches: what leads to an epoch, and where a job goes on."""

from __future__ import annotations

from abscli.planner.lineage import Life, by_number, line, lives_of, maker, stretches
from abscli.planner.retention import Kept, expired
from formats.native.facts import AttemptFacts, header
from formats.native.sink import Stretch


def spans(lives: list[Life], epoch: int) -> list[range]:
    return [range(stretch.first, (stretch.last or 0) + 1) for stretch in stretches(lives, epoch)]


def test_one_life_is_one_span() -> None:
    assert spans([Life(1, 0)], 7) == [range(1, 8)]
    assert line([Life(1, 0)], [1, 2, 3]) == [3, 2, 1]


def test_going_back_leaves_a_branch_behind() -> None:
    lives = [Life(1, 0), Life(11, 2), Life(20, 15)]
    assert spans(lives, 22) == [range(20, 23), range(11, 16), range(1, 3)]
    assert spans(lives, 5) == [range(1, 6)]
    assert line(lives, range(1, 23)) == [22, 21, 20, 15, 14, 13, 12, 11, 2, 1]


def test_a_life_that_ended_before_its_first_epoch_goes_on_from_its_parent() -> None:
    assert line([Life(1, 0), Life(11, 2)], range(1, 11)) == [2, 1]
    assert line([Life(1, 0), Life(11, 0)], range(1, 11)) == []


def test_a_life_that_left_its_first_epoch_to_the_next_does_not_count() -> None:
    lives = [Life(1, 0), Life(11, 5), Life(11, 3)]
    assert line(lives, range(1, 11)) == [3, 2, 1]
    assert spans(lives, 12) == [range(11, 13), range(1, 4)]


def test_each_number_on_a_line_was_made_by_one_attempt() -> None:
    lives = [Life(1, 0, "a"), Life(11, 2, "b"), Life(20, 15, "c")]
    leading = stretches(lives, 22)
    assert leading == [Stretch("c", 20, 22), Stretch("b", 11, 15), Stretch("a", 1, 2)]
    assert [maker(leading, epoch) for epoch in (1, 2, 3, 11, 16, 22, 23)] == ["a", "a", None, "b", None, "c", None]


def test_without_known_lives_numbers_decide() -> None:
    assert line([], [1, 3, 2]) == [3, 2, 1]
    assert spans([], 3) == [range(1, 4)]


def test_what_an_open_epoch_may_be_built_on_stays() -> None:
    epochs = [Kept(n, True, n - 1, frozenset({f"f{n}"})) for n in range(1, 6)]
    assert expired(epochs, 1) == ([1, 2, 3, 4], frozenset({"f5"}))
    assert expired(epochs, 1, floor=3) == ([1, 2], frozenset({"f3", "f4", "f5"}))


# -- repairs ------------------------------------------------------------------------------------------------------


def attempt(number: int, first_epoch: int, parent: int, repairs: int | None = None) -> AttemptFacts:
    return AttemptFacts(
        attempt=number, kind="run" if repairs is None else "repair", generation=1, parent=parent,
        first_epoch=first_epoch, policy="aligned", topology_sha256="0" * 64, directory="/", started="",
        id="abcdefgh"[number - 1], plan=None, code=None, repairs=repairs, **header(AttemptFacts),
    )  # fmt: skip


def test_an_epoch_that_a_repair_made_complete_is_its_own_on_every_line() -> None:
    lives = lives_of([attempt(1, 1, 0), attempt(2, 5, 4, repairs=5), attempt(3, 8, 5)], lambda epoch: False)
    assert lives == [Life(1, 0, "a"), Life(5, 4, "b", 5), Life(8, 5, "c")]
    assert stretches(lives, 9) == [Stretch("c", 8, 9), Stretch("b", 5, 5), Stretch("a", 1, 4)]
    assert line(lives, range(1, 10)) == [9, 8, 5, 4, 3, 2, 1]
    assert by_number(lives, 9) == (Stretch("a", 1, 4), Stretch("b", 5, 5), Stretch("c", 8, 9))


def test_the_numbers_of_epochs_that_were_given_up_before_it_are_the_repairs_as_well() -> None:
    lives = lives_of([attempt(1, 1, 0), attempt(2, 4, 3, repairs=5)], lambda epoch: False)
    assert stretches(lives, 5) == [Stretch("b", 4, 5), Stretch("a", 1, 3)]
    assert line(lives, range(1, 6)) == [5, 4, 3, 2, 1]


def test_an_epoch_that_had_been_complete_stays_with_the_attempt_that_took_it() -> None:
    lives = lives_of([attempt(1, 1, 0), attempt(2, 6, 5, repairs=5)], lambda epoch: False)
    assert lives == [Life(1, 0, "a")]
    assert line(lives, range(1, 8)) == [7, 6, 5, 4, 3, 2, 1]


def test_a_repair_that_was_broken_off_has_no_epoch() -> None:
    assert lives_of([attempt(1, 1, 0), attempt(2, 5, 4, repairs=5)], lambda epoch: epoch == 5) == [Life(1, 0, "a")]


def test_of_several_repairs_of_an_epoch_the_last_that_could_made_it_complete() -> None:
    tries = [attempt(1, 1, 0), attempt(2, 5, 4, repairs=5), attempt(3, 5, 4, repairs=5), attempt(4, 6, 5, repairs=5)]
    assert lives_of(tries, lambda epoch: False) == [Life(1, 0, "a"), Life(5, 4, "c", 5)]
