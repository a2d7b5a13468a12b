"""The two systems of Chandy and Lamport's paper (1985), and what all snapshots of the first one are."""

from __future__ import annotations

from dataclasses import dataclass

from abscli.sim.chandy_lamport.diagram import drawn
from abscli.sim.chandy_lamport.markers import Scope, Step
from abscli.sim.chandy_lamport.processes import Global, Pipe, Rule, System
from abscli.sim.chandy_lamport.runs import explore
from abscli.sim.diagram import Diagram

PIPES = (Pipe("c", "p", "q"), Pipe("c'", "q", "p"))

TOKEN = System.of_rules(
    {"p": "s1", "q": "s0"},
    PIPES,
    [
        Rule("p", "s1", "sends the token", "s0", sends=(("c", "token"),)),
        Rule("q", "s0", "takes the token", "s1", takes=("c", "token")),
        Rule("q", "s1", "sends the token", "s0", sends=(("c'", "token"),)),
        Rule("p", "s0", "takes the token", "s1", takes=("c'", "token")),
    ],
)
"""The single-token conservation system (example 2.1): s1 has the token, s0 has not."""

CROSSING = System.of_rules(
    {"p": "A", "q": "C"},
    PIPES,
    [
        Rule("p", "A", "sends M", "B", sends=(("c", "M"),)),
        Rule("p", "B", "takes M'", "A", takes=("c'", "M'")),
        Rule("q", "C", "sends M'", "D", sends=(("c'", "M'"),)),
        Rule("q", "D", "takes M", "C", takes=("c", "M")),
    ],
)
"""The nondeterministic system (example 2.2): M and M' may cross, and a snapshot may record what never was."""

TOKEN_ON_ITS_WAY: tuple[Step, ...] = (
    ("move", "p", "sends the token"),
    ("start", "q", 1),
    ("take", "c", "takes the token"),
    ("mark", "c'"),
    ("mark", "c"),
    ("move", "q", "sends the token"),
)
"""A run of it, to draw: q starts a snapshot while the token is on its way to it, and the snapshot finds it there."""

PLACES = {
    "token in p": Global(("s1", "s0"), ((), ())),
    "token in c": Global(("s0", "s0"), (("token",), ())),
    "token in q": Global(("s0", "s1"), ((), ())),
    "token in c'": Global(("s0", "s0"), ((), ("token",))),
}
"""The four global states of the single-token system."""


@dataclass(frozen=True, slots=True)
class SingleToken:
    """All snapshots of the single-token system, with p, q or both as initiators.

    worlds, steps: of the search without a bound, however often the token goes round.
    runs: all those in which it is sent `moves` times at most, each one checked by itself.
    recorded: for `p`, `q` and `p and q` as initiators, in how many of these runs each of the states `PLACES` was
    recorded.
    elsewhere: recorded states that are none of them, in either search.
    rule, message, trace: of a violation, None and () without.
    """

    worlds: int
    steps: int
    moves: int
    runs: int
    recorded: dict[str, dict[str, int]]
    elsewhere: tuple[Global, ...]
    rule: str | None
    message: str | None
    trace: tuple[Step, ...]

    @property
    def holds(self) -> bool:
        """Whether no rule is broken, and the states that were recorded are the four, all of them."""
        reached = {place for counts in self.recorded.values() for place, count in counts.items() if count}
        return self.rule is None and not self.elsewhere and reached == PLACES.keys()


def token_on_its_way() -> Diagram:
    """The run as a space-time diagram."""
    return drawn(TOKEN, Scope(), TOKEN_ON_ITS_WAY, "single-token system: the snapshot finds the token on its way")


def single_token(moves: int = 4) -> SingleToken:
    """Search the single-token system: all worlds of any number of moves, and all runs of `moves` of them."""
    worlds, runs = explore(TOKEN, Scope()), explore(TOKEN, Scope(moves=moves), every_run=True)
    wrong = worlds if worlds.rule else runs
    names = {state: name for name, state in PLACES.items()}
    recorded = {who: dict.fromkeys(PLACES, 0) for who in ("p", "q", "p and q")}
    for snapshot, count in runs.recorded.items():
        if snapshot.state in names:
            recorded[" and ".join(sorted(snapshot.initiators))][names[snapshot.state]] += count
    states = dict.fromkeys(snapshot.state for search in (worlds, runs) for snapshot in search.recorded)
    elsewhere = tuple(state for state in states if state not in names)
    return SingleToken(
        worlds.worlds, worlds.steps, moves, runs.ends, recorded, elsewhere, wrong.rule, wrong.message, wrong.trace
    )
