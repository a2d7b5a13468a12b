"""The pictures of a loss in `abscli/protocol`, made by the simulator: `python -m tests.support.sim.loss_pictures`.

One job, two workers, one of which is lost behind epoch 1: once its recovery set goes back, once its tasks alone.
"""

from __future__ import annotations

from pathlib import Path

from abscli.draw.spacetime_svg import spacetime_svg
from abscli.protocol.policy import Policy
from abscli.sim.diagram import Diagram
from abscli.sim.local.world import LocalWorld
from abscli.sim.model import Model
from abscli.sim.recorder import diagram
from abscli.sim.world import Limits, Step, World
from formats.ids import TaskId
from formats.job.model import Edge, Kind, Topology
from tests.support.imports import ROOT
from tests.support.jobs.small import HASH, operator

FOLDER = ROOT / "abscli" / "protocol"
_ROWS = (TaskId("rows", 0), TaskId("rows", 1))
_LOST = (TaskId("rows", 0), TaskId("pages", 1), TaskId("printed", 0))
"""The tasks of worker 0 of two."""


def _job() -> Topology:
    operators = (
        operator("rows", Kind.SOURCE, 2, connector={"type": "jsonl", "path": "in.jsonl"}),
        operator("pages", Kind.MAP, 2, function="steps:page"),
        operator("printed", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
    )
    edges = (Edge("rows", "pages", HASH, ("page",)), Edge("pages", "printed", HASH, ("page",)))
    return Topology("visits", operators, edges)


class _Script:
    """A run that is led by hand."""

    def __init__(self, *, local: bool) -> None:
        self.model = Model.of(_job(), records=4)
        self.limits = Limits(epochs=2, max_concurrent=1, losses=1 if local else len(_LOST), workers=2 if local else 0)
        self.world = (LocalWorld if local else World)(self.model, Policy.ALIGNED, self.limits)
        self.steps: list[Step] = []

    def do(self, step: Step) -> None:
        self.steps.append(step)
        self.world.do(step)

    def settle(self, *words: str) -> None:
        """Let such steps happen, in turns, until there is none."""
        turn = 0
        while steps := [step for step in self.world.enabled() if step[0] in words]:
            self.do(steps[turn % len(steps)])
            turn += 1

    def read(self, count: int) -> None:
        """Each source in its turn, and what it reads goes through the job."""
        for _ in range(count):
            for task in reversed(_ROWS):
                self.do(("read", task, 1))
                self.settle("deliver")


def loss(*, local: bool) -> Diagram:
    """The run: an epoch, six rows, the loss, what has to come again, and the next epoch."""
    script = _Script(local=local)
    script.do(("tick",))
    script.settle("deliver", "persist", "notice", "mail", "manifest", "stored")
    script.read(3)
    for step in [("lose", 0)] if local else [("lose", task) for task in _LOST]:
        script.do(step)
    script.settle("mail", "notice", "deliver", "again")
    if not local:
        script.read(3)
    script.read(1)
    script.do(("tick",))
    script.settle("deliver", "persist", "mail", "manifest")
    tasks = "its tasks alone take their steps again" if local else "the recovery set goes back"
    return diagram(f"A worker is lost: {tasks}", script.model, Policy.ALIGNED, script.limits, script.steps)


def pictures() -> dict[Path, str]:
    """Each file, and what it has to hold."""
    texts = {}
    for name, local in (("loss-set.svg", False), ("loss-local.svg", True)):
        run = loss(local=local)
        begins = next(moment.step for moment in run.moments if moment.kind == "complete")
        steps = [step for step in run.steps() if step >= begins]
        texts[FOLDER / name] = spacetime_svg(run, max_steps=len(steps))
    return texts


if __name__ == "__main__":
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
