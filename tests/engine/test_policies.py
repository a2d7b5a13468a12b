"""Whole jobs under each policy: what is on the channels at the cut, what a restore makes of it, under any policy."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.errors import UsageError
from abscli.engine.job import run_job
from abscli.graph.backedges import back_edges
from abscli.planner.repeats import total
from abscli.report.findings import EpochReport
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from abscli.stores.native.verdict import check_epoch
from formats.ids import channel_name, edge_of
from formats.job.model import Topology
from formats.native import layout
from formats.native.evidence import epoch_evidence
from formats.native.probe import Prober
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import ChannelFacts, Status
from tests.commands.test_jobs import ABS, ROOT, abs_, result
from tests.engine.test_spark import held_in_an_epoch, options, run_and_kill
from tests.support.jobs.small import (
    countdown,
    held_at,
    inline,
    last_counts,
    open_gate,
    output_pairs,
    reach,
    skewed,
    write_countdown,
    write_graph,
    write_skewed,
    write_words,
)

pytestmark = pytest.mark.integration

POLICIES = ["aligned", "unaligned", "at-least-once"]
STORE = "store"
ROUNDS = 20

EveryPolicy = pytest.mark.parametrize("policy", POLICIES)


def store(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / STORE))


def checked(folder: Path, epoch: int) -> EpochReport:
    """What `abs validate` finds of one epoch."""
    s = store(folder)
    evidence = epoch_evidence(s, epoch, Prober(s.storage))
    assert evidence is not None
    return check_epoch(evidence)


def repeats(folder: Path, epoch: int) -> int:
    """Records that `abs validate` says can repeat."""
    found = checked(folder, epoch).repeats
    assert found is not None
    return total(found)


def regular(folder: Path, epoch: int) -> list[ChannelFacts]:
    """The regular channels of an epoch that have a log."""
    s = store(folder)
    back = back_edges(s.topology(epoch))
    return [c for c in s.detail(epoch).channels if c.logged and c.edge not in back]




def run(topology: Topology, folder: Path, policy: str | None, **more: object) -> Any:
    """Run to the end; a job of `skewed` through its middle."""

    def progress(now: Progress) -> None:
        if held_at(folder) is not None:
            open_gate(folder)

    chosen = inline(folder, policy=policy, **{"interval": 0.05, "keep": None, **more})
    return run_job(topology, str(folder / STORE), chosen, progress)


def complete(folder: Path) -> list[int]:
    return [epoch for epoch in store(folder).epoch_numbers() if store(folder).has_manifest(epoch)]


def lost_and_surplus(counts: Counter[str], found: dict[str, int]) -> tuple[int, int]:
    """Records that are missing from the result, and records that it has too often."""
    return sum((counts - Counter(found)).values()), sum((Counter(found) - counts).values())


# -- one life ---------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@EveryPolicy
@pytest.mark.parametrize(
    "job", [(skewed, write_skewed, "word"), (countdown, write_countdown, "id")], ids=["skew", "loop"]
)
def test_without_a_failure_every_policy_is_exact_and_every_cut_is_consistent(
    tmp_path: Path, policy: str, job: tuple[Any, Any, str]
) -> None:
    topology, write, key = job
    counts = write(tmp_path)
    outcome = run(topology(), tmp_path, policy, max_concurrent=2)
    assert (outcome.finished, outcome.policy, outcome.repeats) == (True, policy, ())
    assert last_counts(tmp_path, key) == counts
    for epoch in complete(tmp_path):
        report = checked(tmp_path, epoch)
        assert (report.verdict, report.findings, report.policy) == (Status.COMPLETE, (), policy)
        if policy != "at-least-once":
            assert report.repeats == ()
        if policy != "unaligned":
            assert regular(tmp_path, epoch) == []


@EveryPolicy
def test_a_loop_ends_by_itself_with_every_pair_once(tmp_path: Path, policy: str) -> None:
    pairs = write_graph(tmp_path, nodes=300, degree=3)
    outcome = run(reach(), tmp_path, policy, interval=0.01, max_concurrent=3)
    assert outcome.finished
    assert Counter(output_pairs(tmp_path)) == Counter(pairs)


def test_no_time_of_a_late_barrier_is_taken_for_alignment(tmp_path: Path) -> None:
    write_skewed(tmp_path)
    run(skewed(), tmp_path, "unaligned")
    epoch = held_at(tmp_path) or 0  # of which the slow input's barrier came long after the other's
    wait = max(part.alignment for part in store(tmp_path).parts(epoch))
    assert wait < store(tmp_path).manifest(epoch).duration / 4


def test_back_pressure_and_a_loop_that_is_never_empty_starve_no_barrier(tmp_path: Path, monkeypatch: Any) -> None:
    from abscli.engine import coordinator as service
    from abscli.engine.channels import peers

    monkeypatch.setattr(peers, "CHANNEL_BYTES", 1 << 10)
    monkeypatch.setattr(service, "CIRCULATING_BYTES", 1 << 9)  # less than a file that is read: it is reached
    for policy in POLICIES:
        folder = tmp_path / policy
        counts = write_countdown(folder, files=20, rounds=ROUNDS, turning=True)
        paused: set[bool] = set()

        def progress(now: Progress, folder: Path = folder, paused: set[bool] = paused) -> None:
            paused.add(now.paused)
            if now.epochs > 2 and True in paused:
                open_gate(folder)

        chosen = inline(folder, policy=policy, interval=0.01, max_concurrent=3)
        assert run_job(countdown(), str(folder / STORE), chosen, progress).finished
        assert last_counts(folder, "id") == counts
        assert paused == {False, True}


# -- two lives --------------------------------------------------------------------------------------------


def most(folder: Path, what: Callable[[Path, int], int]) -> int:
    """The epoch with the most of something, of which there must be some."""
    epoch = max(complete(folder), key=lambda epoch: what(folder, epoch))
    assert what(folder, epoch) > 0
    return epoch


def log_records(folder: Path, epoch: int) -> int:
    return store(folder).manifest(epoch).log_records


@pytest.mark.parametrize("then", [None, "aligned", "at-least-once"])
def test_logs_of_regular_channels_are_their_heads_whatever_the_next_policy(tmp_path: Path, then: str | None) -> None:
    counts = write_skewed(tmp_path)
    run(skewed(), tmp_path, "unaligned")
    epoch = most(tmp_path, log_records)
    logged = regular(tmp_path, epoch)
    assert {("lines", "words"), ("words", "counts")} <= {channel.edge for channel in logged}
    assert sum(channel.logged or 0 for channel in logged) == log_records(tmp_path, epoch)
    assert all(sum(b.num_rows for b in store(tmp_path).log(epoch, c.channel)) == c.logged for c in logged)
    outcome = run(skewed(), tmp_path, then, from_epoch=epoch)
    assert (outcome.finished, outcome.policy, outcome.repeats) == (True, then or "unaligned", ())
    assert last_counts(tmp_path) == counts
    assert store(tmp_path).manifest(outcome.epoch).policy == outcome.policy
    assert store(tmp_path).manifest(epoch).policy == "unaligned"


@pytest.mark.parametrize("then", ["unaligned", "aligned"])
def test_a_restored_log_that_is_not_read_before_the_next_copy_goes_into_the_next_log(tmp_path: Path, then: str) -> None:
    counts = write_skewed(tmp_path)
    run(skewed(), tmp_path, "unaligned")
    plan = plan_recovery(store(tmp_path), epoch=most(tmp_path, log_records))
    assert ("words", "counts") in {edge_of(log.channel) for log in plan.body.replay_logs}
    done = restore(plan, skewed(), inline(tmp_path, policy=then, until="drained", keep=None))
    assert done.replayed == sum(log.records or 0 for log in plan.body.replay_logs) > 0
    assert (done.policy, log_records(tmp_path, done.epoch)) == (then, 0)
    assert run(skewed(), tmp_path, None, from_epoch=done.epoch).policy == then
    assert last_counts(tmp_path) == counts


@pytest.mark.parametrize("then", [None, "unaligned"])
def test_at_least_once_loses_nothing_and_repeats_what_validate_says(tmp_path: Path, then: str | None) -> None:
    counts = write_skewed(tmp_path)
    run(skewed(), tmp_path, "at-least-once")
    epoch = most(tmp_path, repeats)
    said = checked(tmp_path, epoch).repeats
    assert {repeat.channel.edge for repeat in said or ()} == {("words", "counts")}
    outcome = run(skewed(), tmp_path, then, from_epoch=epoch)
    assert (outcome.policy, outcome.repeats) == (then or "at-least-once", said)
    assert lost_and_surplus(counts, last_counts(tmp_path)) == (0, repeats(tmp_path, epoch))


def test_a_plan_and_a_restore_say_what_will_come_again(tmp_path: Path) -> None:
    counts = write_skewed(tmp_path)
    run(skewed(), tmp_path, "at-least-once")
    epoch = most(tmp_path, repeats)
    plan = plan_recovery(store(tmp_path), epoch=epoch)
    again = {str(repeat.channel): repeat.records for repeat in checked(tmp_path, epoch).repeats or ()}
    assert {row.channel: row.records for row in plan.body.repeats or ()} == again
    done = restore(plan, skewed(), inline(tmp_path, until="drained", keep=None))
    assert done.policy == "at-least-once"
    assert {str(repeat.channel): repeat.records for repeat in done.repeats or ()} == again
    run(skewed(), tmp_path, "aligned", from_epoch=done.epoch)
    assert lost_and_surplus(counts, last_counts(tmp_path)) == (0, repeats(tmp_path, epoch))


@pytest.mark.parametrize(
    ("policy", "then"), [("aligned", "at-least-once"), ("unaligned", "aligned"), ("at-least-once", "unaligned")]
)
def test_a_loop_goes_on_from_its_logs_under_any_policy(tmp_path: Path, policy: str, then: str) -> None:
    counts = write_countdown(tmp_path, files=20, rounds=ROUNDS, turning=True)

    def progress(now: Progress) -> None:
        if now.epochs and log_records(tmp_path, now.epoch) > 0:
            open_gate(tmp_path)

    chosen = inline(tmp_path, policy=policy, interval=0.05, keep=None)
    run_job(countdown(), str(tmp_path / STORE), chosen, progress)
    epoch = most(tmp_path, log_records)
    assert run(countdown(), tmp_path, then, from_epoch=epoch).finished
    lost, surplus = lost_and_surplus(counts, last_counts(tmp_path, "id"))
    assert lost == 0
    assert surplus <= repeats(tmp_path, epoch) * (ROUNDS + 1)


def test_a_job_goes_on_under_the_policy_that_it_ran_under_last(tmp_path: Path) -> None:
    from tests.support.jobs.small import word_count

    write_words(tmp_path)
    assert run(word_count(), tmp_path, None).policy == "aligned"
    for asked, found in ((None, "aligned"), ("unaligned", "unaligned"), (None, "unaligned"), ("aligned", "aligned")):
        latest = store(tmp_path).latest()
        assert run(word_count(), tmp_path, asked, from_epoch=latest).policy == found
        assert store(tmp_path).attempts()[-1].policy == found
    with pytest.raises(UsageError, match="unknown policy 'exactly-twice'"):
        run(word_count(), tmp_path, "exactly-twice", from_epoch=store(tmp_path).latest())


def test_no_two_channels_share_a_log_file() -> None:
    for topology in (skewed(), countdown(), reach(3)):
        width = {op.id: op.parallelism for op in topology.operators}
        channels = [
            (f"{edge.source}/{i}", f"{edge.target}/{j}")
            for edge in topology.edges
            for i in range(width[edge.source])
            for j in range(width[edge.target])
        ]
        assert len({channel_name(*channel) for channel in channels}) == len(channels)
        assert len({layout.log(1, receiver, sender, "") for sender, receiver in channels}) == len(channels)


# -- killed workers ---------------------------------------------------------------------------------------


def turning_in_an_epoch(folder: Path) -> Callable[[Progress], bool]:
    """True in the middle of an epoch, when the newest complete one has a log of the loop: later ones have one, too."""
    return lambda progress: bool(progress.open_epochs and progress.epochs) and log_records(folder, progress.epoch) > 0


@pytest.mark.sample(1)
@EveryPolicy
def test_a_worker_killed_under_skew(tmp_path: Path, spark: Any, policy: str) -> None:
    counts = write_skewed(tmp_path)
    run_and_kill(skewed(), tmp_path, spark, held_in_an_epoch(tmp_path), policy=policy, interval=0.05, keep=None)
    latest = held_at(tmp_path) or 0
    assert latest == store(tmp_path).latest()
    assert checked(tmp_path, latest).findings == ()
    assert (log_records(tmp_path, latest) > 0) == (policy == "unaligned")
    open_gate(tmp_path)
    outcome = run_job(skewed(), str(tmp_path / STORE), options(tmp_path, spark, from_epoch=latest, keep=None))
    assert (outcome.finished, outcome.policy) == (True, policy)
    expected = repeats(tmp_path, latest)
    assert (expected > 0) == (policy == "at-least-once")
    assert lost_and_surplus(counts, last_counts(tmp_path)) == (0, expected)


@pytest.mark.sample(1)
@EveryPolicy
def test_a_worker_killed_in_a_loop(tmp_path: Path, spark: Any, policy: str) -> None:
    counts = write_countdown(tmp_path, rounds=ROUNDS, turning=True)
    run_and_kill(countdown(), tmp_path, spark, turning_in_an_epoch(tmp_path), policy=policy, interval=0.05, keep=None)
    open_gate(tmp_path)
    latest = store(tmp_path).latest() or 0
    assert log_records(tmp_path, latest) > 0
    assert checked(tmp_path, latest).findings == ()
    chosen = options(tmp_path, spark, from_epoch=latest, keep=None, policy="aligned")
    assert run_job(countdown(), str(tmp_path / STORE), chosen).finished
    lost, surplus = lost_and_surplus(counts, last_counts(tmp_path, "id"))
    assert lost == 0
    assert surplus <= repeats(tmp_path, latest) * (ROUNDS + 1)


# -- the commands -----------------------------------------------------------------------------------------

JOB = """version: 1
job: words
parallelism: 2
operators:
  lines:
    source: {type: jsonl, path: in/*.jsonl, schema: {line: string}}
  words:
    from: lines
    flat_map: skew:words
  counts:
    from: words
    reduce: {key: [word], n: {count: "*"}}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""


def killed(folder: Path, policy: str) -> int:
    """`abs run` in one process, killed in its middle: its newest complete epoch has what the policy leaves there."""
    (folder / "job.yaml").write_text(JOB)
    command = [*ABS, "run", "job.yaml", "--store", STORE, "--engine", "inline", "--workers", "2", "--interval", "50ms"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--policy", policy], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        while (latest := held_at(folder)) is None:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    open_gate(folder)
    assert latest == store(folder).latest()
    return latest


@pytest.mark.sample(1)
@pytest.mark.fast(reason="one killed process for each policy")
@EveryPolicy
def test_a_killed_process_is_resumed_and_says_what_came_again(tmp_path: Path, policy: str) -> None:
    counts = write_skewed(tmp_path)
    again = repeats(tmp_path, killed(tmp_path, policy))
    weak = policy == "at-least-once"
    assert (again > 0) == weak
    resumed = abs_("run", "job.yaml", "--store", STORE, "--engine", "inline", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0
    assert (f"{again:,} records may be processed twice, on" in resumed.stderr) == weak
    assert (f"{again:,} records came again" in resumed.stdout) == weak
    assert (f"policy {policy}: records may repeat" in resumed.stdout) == weak
    assert lost_and_surplus(counts, last_counts(tmp_path)) == (0, again)


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["unaligned", "at-least-once"])
def test_every_output_says_what_is_on_the_channels_and_what_may_repeat(tmp_path: Path, policy: str) -> None:
    counts = write_skewed(tmp_path)
    latest = killed(tmp_path, policy)
    ref = f"{STORE}@{latest}"
    weak = policy == "at-least-once"
    again = repeats(tmp_path, latest)
    said = [{"channel": str(r.channel), "records": r.records} for r in checked(tmp_path, latest).repeats or ()]

    shown = result(abs_("inspect", ref, "-o", "json", cwd=tmp_path), "abs.inspect")
    assert (shown["policy"], shown["repeats"], shown["epochs"][0]["policy"]) == (policy, said, policy)
    assert sum(channel["logged"] for channel in shown["channels"]) == log_records(tmp_path, latest)
    text = abs_("inspect", ref, cwd=tmp_path).stdout
    assert f"policy {policy}" in text
    assert "records may repeat" in text if weak else "records may repeat" not in text
    assert ("CAN REPEAT AFTER A RESTORE" in text, "CHANNEL STATE" in text) == (weak, not weak)
    text = " ".join(abs_("inspect", STORE, cwd=tmp_path).stdout.split())
    assert f"Policy {policy}: epoch" in text
    assert ("records may repeat after a restore" in text) == weak

    verdict = result(abs_("validate", ref, "-o", "json", cwd=tmp_path), "abs.validate")
    assert (verdict["epochs"][0]["policy"], verdict["epochs"][0]["repeats"]) == (policy, said)
    text = abs_("validate", ref, cwd=tmp_path).stdout
    assert (f"epoch {latest}: {again:,} records: words/0->counts/0 " in text) == weak

    planned = abs_("plan-recovery", STORE, "--epoch", latest, "--out", "plan.json", "-o", "json", cwd=tmp_path)
    assert result(planned, "abs.plan")["body"]["repeats"] == said
    text = " ".join(abs_("plan-recovery", STORE, "--epoch", latest, cwd=tmp_path).stdout.split())
    assert (f"taken at-least-once; its state holds {again:,} records that come again" in text) == weak
    restoring = ("restore", "plan.json", "--job", "job.yaml", "--engine", "inline", "--yes", "--policy", "aligned")
    done = result(abs_(*restoring, "-o", "json", cwd=tmp_path), "abs.restore")
    assert (done["policy"], done["repeats"]) == ("aligned", said)
    assert done["replayed"] == log_records(tmp_path, latest)

    resumed = abs_("run", "job.yaml", "--store", STORE, "--engine", "inline", "--resume", "-o", "json", cwd=tmp_path)
    assert result(resumed, "abs.run")["policy"] == "aligned"
    assert lost_and_surplus(counts, last_counts(tmp_path)) == (0, again)
