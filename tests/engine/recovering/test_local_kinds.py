"""One job with an operator of every kind loses a worker, under each policy and each way of putting out: the lost tasks
alone take their steps again, and every result is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from abscli.engine.errors import UsageError
from abscli.engine.losses.decisions import Scope
from abscli.engine.operators.making import make_operator
from formats.ids import TaskId
from formats.job.model import Aggregate, Edge, Kind, Topology
from tests.engine.recovering.alone import check_alone
from tests.engine.recovering.test_live import survive
from tests.support.jobs.kills import after, check_counted, write_rows
from tests.support.jobs.small import FORWARD, HASH, inline, last_counts, operator

pytestmark = pytest.mark.minutes

POLICIES = ("aligned", "unaligned", "at-least-once")
EMITS = ("epoch", "record", "batch", "change")

CHOOSING = """

def kept(batch):
    return pc.not_equal(pc.bit_wise_and(batch["id"], 3), 0)

def twice(batch):
    return pa.concat_batches([batch, batch])
"""


def every_kind(emit: str) -> Topology:
    """Rows go two ways that meet again: those of one in four ids go one way alone, all others twice. Of what meets each
    row counts once."""
    counted = (Aggregate("n", "count", "*"),)
    return Topology(
        "kinds",
        (
            operator("rows", Kind.SOURCE, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator("same", Kind.MAP, function="slow:pass_on"),
            operator("kept", Kind.FILTER, function="slow:kept"),
            operator("twice", Kind.FLAT_MAP, function="slow:twice"),
            operator("both", Kind.UNION),
            operator("seen", Kind.DISTINCT, key=("key", "id")),
            operator("counts", Kind.REDUCE, key=("key",), aggregates=counted, emit=emit),
            operator("out", Kind.SINK, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("rows", "same", HASH, ("id",)),
            Edge("same", "kept", FORWARD),
            Edge("kept", "twice", FORWARD),
            Edge("same", "both", HASH, ("key",)),
            Edge("twice", "both", HASH, ("id",)),
            Edge("both", "seen", HASH, ("key", "id")),
            Edge("seen", "counts", HASH, ("key",)),
            Edge("counts", "out", FORWARD),
        ),
    )


def test_the_job_has_every_kind_that_runs() -> None:
    runs = {operator.kind for operator in every_kind("record").operators}
    for kind in set(Kind) - runs:
        with pytest.raises(UsageError, match="does not support"):
            make_operator(operator("one", kind), TaskId("one", 0), "")


@pytest.mark.sample(4)
@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_kind_takes_its_steps_again(tmp_path: Path, policy: str, emit: str) -> None:
    lost = (POLICIES.index(policy) + EMITS.index(emit)) % 2
    counts: Counter[str] = write_rows(tmp_path, files=240)
    with (tmp_path / "slow.py").open("a") as module:
        module.write("\nimport pyarrow as pa\nimport pyarrow.compute as pc\n" + CHOOSING)
    options = inline(tmp_path, policy=policy, recovery=Scope.LOCAL)
    _, (recovery,) = survive(every_kind(emit), tmp_path, options, [(after(2, open_epoch=True), [lost])])
    if recovery.again is None:
        # At least once a copy may hold what another lost task had sent behind its own.
        assert policy == "at-least-once"
        assert "sent behind it, both are lost" in recovery.cause
        assert all(last_counts(tmp_path, "key")[key] >= count for key, count in counts.items())
        return
    check_alone(recovery, every_kind(emit), lost)
    if emit == "record":
        check_counted(tmp_path, counts)
    else:
        assert last_counts(tmp_path, "key") == counts
