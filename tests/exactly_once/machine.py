"""Any sequence of what people do to stores and sinks, as hypothesis finds it: a machine whose rules are the steps of
`World`."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.exactly_once.answers import FILES_OF, Job
from tests.exactly_once.children import PLAIN, Children, How, Loss
from tests.exactly_once.world import DAMAGES, STORES, WORKERS, World

MOST_CHANGES = 250
"""Of the file system in one command, about: a kill may come before or after each."""

stores = st.sampled_from(STORES)
backs = st.integers(0, 6)
ends = st.integers(1, 3)
moments = st.integers(1, MOST_CHANGES)
kills = st.builds(How, epochs=ends, signal=st.just(int(signal.SIGKILL)), at=moments, after=st.booleans())
stops = st.builds(How, epochs=ends)
ways = st.one_of(stops, kills)
workers = st.sets(st.integers(0, WORKERS - 1), min_size=1, max_size=2).map(lambda numbers: tuple(sorted(numbers)))
losses = st.lists(st.builds(Loss, st.integers(0, 4), st.booleans(), workers), min_size=1, max_size=3)
policies = st.sampled_from([None, None, "aligned", "unaligned"])
any_of = st.integers(0, 30)


class Sequences(RuleBasedStateMachine):
    """Steps on one folder.

    children: what runs commands; set before the machine runs.
    fault: that is planted in all of them.
    commands: that all machines have run.
    seen: what happened in all of them.
    failures: where folders of machines that failed are kept, if they are to be.
    """

    children: ClassVar[Children]
    fault: ClassVar[str | None] = None
    commands: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()
    failures: ClassVar[Path | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="abs-sequence-"))

    @initialize(job=st.sampled_from(list(FILES_OF)))
    def begin(self, job: Job) -> None:
        self.world = World(self.folder, self.children, job, self.fault)
        self.world.run("a", how=How(epochs=2))

    @rule(store=stores, how=ways, take_ownership=st.booleans(), keep=st.sampled_from([1, 2, 100]), policy=policies)
    def run(self, store: str, how: How, take_ownership: bool, keep: int, policy: str | None) -> None:
        self.world.run(store, how=how, take_ownership=take_ownership, keep=keep, policy=policy)

    @rule(number=any_of, tasks=st.sampled_from([1, 2, 3, 5]), back=st.one_of(st.none(), backs), how=ways)
    def rescale(self, number: int, tasks: int, back: int | None, how: How) -> None:
        self.world.run(self.there(number), back=back, take_ownership=True, tasks=tasks, how=how)

    @rule(number=any_of, at=moments)
    def be_slow(self, number: int, at: int) -> None:
        """An epoch is given up."""
        how = How(epochs=3, signal=0, at=at)
        self.world.run(self.there(number), take_ownership=True, timeout="1s", how=how)

    @rule(
        number=any_of, recovery=st.sampled_from(["local", "subgraph", "full"]), losses=losses, policy=policies,
        keep=st.sampled_from([1, 100]), back=st.one_of(st.none(), backs),
    )
    def lose_workers(
        self, number: int, recovery: str, losses: list[Loss], policy: str | None, keep: int, back: int | None
    ) -> None:
        """They are lost while the job runs, and it goes on."""
        how = How(epochs=3, losses=tuple(sorted(losses)))
        self.world.run(
            self.there(number), take_ownership=True, recovery=recovery, policy=policy, keep=keep, back=back, how=how
        )

    @rule(store=stores, back=backs, how=ways, take_ownership=st.booleans())
    def run_from(self, store: str, back: int, how: How, take_ownership: bool) -> None:
        self.world.run(store, back=back, how=how, take_ownership=take_ownership)

    @rule(number=any_of, keep=st.integers(1, 3), how=st.one_of(st.just(PLAIN), kills))
    def gc(self, number: int, keep: int, how: How) -> None:
        self.world.gc(self.there(number), keep, how=how)

    @rule(number=any_of, to=stores)
    def copy(self, number: int, to: str) -> None:
        if (source := self.there(number)) != to:
            self.world.copy(source, to)

    @rule(number=any_of, back=st.one_of(st.none(), backs))
    def plan(self, number: int, back: int | None) -> None:
        self.world.plan(self.there(number), back)

    @rule(
        number=any_of, to=st.one_of(st.none(), stores), until=st.sampled_from(["drained", "end"]),
        take_ownership=st.booleans(), how=ways,
    )  # fmt: skip
    def restore(self, number: int, to: str | None, until: str, take_ownership: bool, how: How) -> None:
        if not self.world.plans:
            self.world.plan(self.there(number), None)
        if self.world.plans:
            self.world.restore(number, to, until=until, take_ownership=take_ownership, how=how)

    @rule(number=any_of, damage=st.sampled_from(DAMAGES), how=st.one_of(st.just(PLAIN), kills))
    def repair(self, number: int, damage: str, how: How) -> None:
        self.world.repair(self.there(number), damage, number, how=how)

    @rule(number=any_of, other=stores, take_ownership=st.booleans(), at=moments, how=stops)
    def contend(self, number: int, other: str, take_ownership: bool, at: int, how: How) -> None:
        self.world.contend(self.there(number), other, take_ownership=take_ownership, at=at, how=how)

    @rule(number=any_of, to=stores, at=moments, how=stops)
    def contend_restore(self, number: int, to: str, at: int, how: How) -> None:
        if (store := self.there(number)) != to:
            self.world.contend_restore(store, to, at=at, how=how)

    @rule(number=any_of, at=moments, how=stops)
    def lose_locks(self, number: int, at: int, how: How) -> None:
        self.world.lose_locks(self.there(number), at=at, how=how)

    @rule(number=any_of)
    def lose_books(self, number: int) -> None:
        self.world.lose_books(self.there(number), number)

    @rule(number=any_of)
    def hide_part(self, number: int) -> None:
        self.world.hide_part(self.there(number), number)

    def there(self, number: int) -> str:
        """A store that is there. What is drawn must not depend on which are: that is not the same each time."""
        names = sorted(self.world.stores)
        return names[number % len(names)]

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.world.end()
        finally:
            if hasattr(self, "world"):
                Sequences.commands += self.world.commands
                Sequences.seen += self.world.seen
            if self.failures is not None and sys.exc_info()[0] is not None:
                shutil.move(self.folder, self.failures)
            else:
                shutil.rmtree(self.folder)


RULES = frozenset({
    "run", "be_slow", "lose_workers", "run_from", "gc", "copy", "plan", "restore", "contend", "contend_restore",
    "lose_locks", "lose_books", "hide_part", "repair", "rescale",
})  # fmt: skip
"""The names of all rules."""


def led_to(rules: Collection[str]) -> type[Sequences]:
    """The machine with these rules alone."""
    return type("Led", (Sequences,), dict.fromkeys(RULES - set(rules)))
