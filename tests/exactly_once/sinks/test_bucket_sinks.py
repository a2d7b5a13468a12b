"""Sinks in buckets: what waits is an upload that the manifest names. Each line is visible once, whatever is killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.bucket_moves import BucketMoves
from abscli.engine.sinks.examined import Examined
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.sinks.settling import settle_bucket
from abscli.planner.settlement import Wanted
from abscli.report.findings import Code
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from abscli.stores.native.repairing.repair_plan import plan_repair
from abscli.stores.native.uploads import left_uploads
from formats.errors import Damaged, NoRecovery, NotFound, StoreInUse
from formats.native.facts import SinkFile, UploadFacts
from formats.native.remove import newest_attempt
from formats.native.sink import PartId, Stretch, new_claim, part_name
from formats.native.sink_bucket import SHOWN, SinkBucket, object_name
from formats.storage import LocalStorage, ObjectStorage, retrying
from formats.timestamps import now
from tests.support.jobs.lines import (
    ROOT,
    Gate,
    Lines,
    in_a_process,
    killed,
    topology,
    wait_until_stopped,
    write_lines,
)
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place
from tests.support.objects.proxy import Fault, proxy_to
from tests.support.objects.servers import ObjectServer

pytestmark = pytest.mark.minutes

IN_PROGRESS = {Code.MISSING_ACK, Code.UNREFERENCED_FILE}
"""What is said of epochs that a kill has left."""
IDS = ("a" * 32, "b" * 32)

MOTO, RGW, AZURITE, GOOGLE = "S3 by moto", "S3 by Ceph RGW", "Azure by Azurite", "Google by a server in memory"
TESTBENCH = "Google by its testbench"
EACH = pytest.mark.parametrize("lines", [MOTO, AZURITE, GOOGLE], indirect=True)


@pytest.fixture
def lines(tmp_path: Path, gate: Gate, request: pytest.FixtureRequest, servers: Servers,
          monkeypatch: pytest.MonkeyPatch) -> Lines:  # fmt: skip
    """The job with its sink in a bucket of moto's, or of the server that a test is parametrized with."""
    write_lines(tmp_path, 7)
    server = use(servers.get(getattr(request, "param", MOTO)), monkeypatch)
    return into_bucket(Lines(tmp_path, gate), server, monkeypatch)


def into_bucket(lines: Lines, server: ObjectServer, patch: pytest.MonkeyPatch) -> Lines:
    patch.setenv("CLAIM_SECONDS", "2")
    return Lines(lines.folder, lines.gate, str(bucket_place(server).root))


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_two_sinks_of_a_job_do_not_take_their_uploads_for_one_another(
    lines: Lines, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their parts have the same attempt, task and epoch, and so the same names."""
    also = replace(lines, out=f"{lines.out}-also")
    both = replace(lines, also=also.out)
    killed(both, where, 3)
    both.resume()
    assert both.wrong() == also.wrong() == {}


def findings(lines: Lines, store: str = "a") -> set[str]:
    """The codes of what validation finds."""
    return {finding.code for finding in lines.validated(store).all_findings} - IN_PROGRESS


def collected(lines: Lines) -> list[str]:
    """What `abs gc` removes, however young."""
    store = lines.store()
    removal = plan_removal(store, 100, min_age=0, targets=lines.targets())
    assert isinstance(store.storage, LocalStorage)
    carry_out(store.storage, removal, newest_attempt(store.storage), lines.targets())
    return [orphan.path for orphan in removal.orphans if orphan.removable]


@pytest.mark.cell("J", "exact", "bucket")
@pytest.mark.parametrize("lines", [MOTO, RGW, AZURITE, GOOGLE, TESTBENCH], indirect=True)
def test_it_stops_goes_on_goes_back_and_returns(lines: Lines) -> None:
    lines.run(epochs=2)
    first = lines.complete()
    lines.resume(epochs=1)
    line = lines.complete()
    lines.run(from_epoch=first[1], epochs=1)
    back = lines.complete()[-1]
    lines.run(from_epoch=line[-1], epochs=1)  # what was set aside is shown again
    lines.run(from_epoch=back)
    assert lines.wrong() == {}
    assert findings(lines) == set()
    assert any(shown.claim for shown in SinkBucket(lines.out).shown())


@pytest.mark.parametrize("type", ["csv", "parquet"])
def test_parts_of_other_types_are_killed_gone_on_with_and_gone_back_before(lines: Lines, type: str) -> None:
    lines.type = type
    killed(lines, "completing", 3)
    lines.resume(epochs=2)
    first = lines.complete()[1]
    lines.run(from_epoch=first, epochs=1)
    lines.run(from_epoch=first)
    assert lines.wrong() == {}
    assert findings(lines) <= {Code.ABANDONED_UPLOAD}
    assert {Path(shown.object).suffix for shown in SinkBucket(lines.out).shown()} == {f".{type}"}


@EACH
def test_the_manifest_names_what_is_completed_after_it(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(lines, "reveal", 3)
    store, bucket = lines.store(), SinkBucket(lines.out)
    newest = [file for part in store.parts(lines.complete()[-1]) for file in part.sink]
    waiting = {id for ids in bucket.waiting().values() for id in ids}
    assert {file.upload.id for file in newest if file.upload} <= waiting
    assert len(newest) == len({file.upload.object for file in newest if file.upload}) > 0
    assert not {file.upload.object for file in newest if file.upload} & {one.object for one in bucket.shown()}
    assert findings(lines) <= {Code.ABANDONED_UPLOAD}
    secrets = [value for path in lines.folder.rglob("*.json") if b"testing" in (value := path.read_bytes())]
    assert not secrets
    lines.resume(epochs=1)
    assert {file.upload.object for file in newest if file.upload} <= {one.object for one in bucket.shown()}
    lines.resume()
    assert lines.wrong() == {}


@pytest.mark.sample(5)
@pytest.mark.cell("A", "exact", "bucket")
@pytest.mark.parametrize(
    ("lines", "where"),
    [*((name, where) for where in ("begin", "put", "manifest", "reveal", "completing", "complete")
       for name in (MOTO, AZURITE, GOOGLE)),
     *((name, where) for where in ("put", "completing", "complete") for name in (RGW, TESTBENCH))],
    indirect=["lines"],
)  # fmt: skip
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str) -> None:
    killed(lines, where, 3)
    lines.resume()
    assert lines.wrong() == {}
    left = [upload.uri for upload in left_uploads(lines.store(), [lines.out])]
    assert findings(lines) == ({Code.ABANDONED_UPLOAD} if left else set())
    # Azure does not know of an upload before its first block, nor Google before its bytes.
    assert bool(left) == (where in ("put", "manifest") or (where == "begin" and lines.out.startswith("s3:")))
    assert set(left) <= set(collected(lines))
    assert left_uploads(lines.store(), [lines.out]) == []
    assert findings(lines) == set()
    assert lines.wrong() == {}


@pytest.mark.cell("N", "stops", "bucket")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("lines", "where", "back"),
    # moto answers one request at a time: one that was stopped in the middle of a request is in everybody's way.
    [(MOTO, "manifest", 0), (MOTO, "reveal", 1), (AZURITE, "manifest", 0), (AZURITE, "reveal", 1),
     *((name, *at) for at in (("completing", 0), ("completing", 1), ("complete", 1))
       for name in (RGW, AZURITE, GOOGLE, TESTBENCH)), (GOOGLE, "copied", 1)],
    indirect=["lines"],
)  # fmt: skip
def test_an_owner_that_comes_back_shows_nothing(lines: Lines, where: str, back: int) -> None:
    """It was stopped, and another attempt went on from the newest epoch or from the one before."""
    stale = in_a_process(lines, where, 3, signal.SIGSTOP)
    try:
        wait_until_stopped(stale)
        (lines.folder / "a" / "lock").rename(lines.folder / "a" / "lock-of-old")
        complete = lines.complete()
        lines.run(from_epoch=complete[-1 - back], epochs=1)
    finally:
        stale.send_signal(signal.SIGCONT)
        _, errors = stale.communicate(timeout=300)
    assert stale.returncode == 1, errors
    assert "took the store over" in errors if where == "manifest" else "was taken over by attempt 2" in errors
    assert all(count == 1 for count in lines.shown().values())
    assert Code.UNREFERENCED_SINK_PART not in findings(lines)
    lines.resume()
    assert lines.wrong() == {}
    assert Code.SINK_PART_MISSING not in findings(lines)


@EACH
def test_store_and_sink_may_both_lie_in_buckets(lines: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = lines.out.replace("/store", "/books")
    killed(lines, "completing", 3, store=store)
    lines.resume(store, epochs=1)
    lines.resume(store)
    assert lines.wrong() == {}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    claim = SinkBucket(lines.out).newest_claim()
    assert claim is not None
    assert claim.store == store
    assert findings(lines, store) == set()


def server_of(lines: Lines, servers: Servers) -> ObjectServer:
    """The server that has the bucket of the sink."""
    return servers.get({"az": AZURITE, "gs": GOOGLE}.get(lines.out[:2], MOTO))


@pytest.mark.sample(2)
@pytest.mark.cell("M", "exact", "bucket")
@EACH
@pytest.mark.parametrize("fault", Fault)
def test_a_request_that_is_carried_out_and_not_answered_changes_nothing(
    lines: Lines, fault: Fault, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of(lines, servers)
    if fault is Fault.SILENCE:
        monkeypatch.setattr(retrying, "DEADLINE", 1.0)
        monkeypatch.setattr(retrying, "SERVER_COPY", 1.0)
    with proxy_to(server.port) as proxy:
        use(server, monkeypatch, proxy.port)
        proxy.fault, proxy.lose_every = fault, 20 if fault is Fault.SILENCE else 5
        proxy.loses_of = frozenset({"PUT", "POST", "DELETE"})
        lines.run(epochs=3)
        lines.run(from_epoch=lines.complete()[0], epochs=1)
        lines.resume()
        assert proxy.lost > (1 if fault is Fault.SILENCE else 5)
    use(server, monkeypatch)
    lines.resume()
    assert lines.wrong() == {}
    assert findings(lines) <= {Code.ABANDONED_UPLOAD}


@EACH
def test_lists_that_come_late_lead_to_the_same_rows_or_to_a_refusal(
    lines: Lines, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three clouds promise lists that are up to date; a cache in front of one may break that promise."""
    server = server_of(lines, servers)
    with proxy_to(server.port) as proxy:
        use(server, monkeypatch, proxy.port)
        proxy.lists_late = 0.5
        for step in (lambda: lines.run(epochs=3), lambda: lines.resume(epochs=2), lambda: lines.resume(epochs=2)):
            with contextlib.suppress(UsageError, EngineStopped, Damaged, StoreInUse):
                step()
        assert proxy.stale
    use(server, monkeypatch)
    lines.resume()
    assert lines.wrong() == {}
    assert findings(lines) <= {Code.ABANDONED_UPLOAD}


@EACH
def test_an_upload_that_was_ended_by_somebody_is_missed(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    bucket = SinkBucket(lines.out)
    for part, ids in bucket.waiting().items():
        bucket.uploads.abort(object_name(part), ids)
    assert Code.SINK_PART_MISSING in findings(lines)
    with pytest.raises(Damaged, match=r"an output part of \d+ rows is missing") as caught:
        lines.resume()
    assert "--from-epoch" in (caught.value.hint or "")
    assert SHOWN.fullmatch((caught.value.path or "").rpartition("/")[2])
    paths = {f.path or "" for f in lines.validated().all_findings if f.code is Code.SINK_PART_MISSING}
    assert paths
    assert all(SHOWN.fullmatch(path.rpartition("/")[2]) for path in paths)
    lines.run(from_epoch=lines.complete()[-2])
    assert lines.wrong() == {}


def test_a_sink_that_shows_anothers_output_is_taken_over_on_purpose(lines: Lines) -> None:
    lines.run("a", epochs=3)
    with pytest.raises(UsageError, match="contains output of attempt"):
        lines.run("b")
    lines.run("b", take_ownership=True, epochs=3)
    lines.resume("a", take_ownership=True)
    assert lines.wrong() == {}


def test_an_epoch_that_a_bucket_waits_for_is_not_repaired(lines: Lines) -> None:
    """An upload is of the attempt that began it: with parts of two attempts no epoch can be made whole."""
    killed(lines, "manifest", 2)
    with pytest.raises(NoRecovery, match="its sink out writes to a bucket"):
        plan_repair(lines.store(), epoch=lines.complete()[-1] + 1)
    lines.resume()
    assert lines.wrong() == {}


@pytest.mark.sample(1)
@EACH
def test_workers_of_spark_put_their_own(lines: Lines) -> None:
    """In processes of their own, which get what they need to know from the environment."""
    program = (
        "import sys; from abscli.engine.job import JobOptions, run_job; from tests.support.jobs.lines import topology; "
        "run_job(topology(sys.argv[2]), sys.argv[3], JobOptions(sys.argv[1], 'job.yaml', master='local[2]', "
        "interval=0.3))"
    )
    command = [sys.executable, "-c", program, str(lines.folder), lines.out, lines.where("a")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines.wrong() == {}
    assert findings(lines) == set()


@pytest.mark.parametrize("path", ["s3://bucket/store", "s3a://bucket/store/", "s3://bucket/store/epochs/out"])
def test_a_sink_in_the_store_is_refused_under_each_of_its_names(path: str) -> None:
    outputs = Outputs(topology(path), "/job")
    for store in ("s3://bucket/store", "s3n://bucket/store/"):
        with pytest.raises(UsageError, match="is inside the store"):
            outputs.check_apart(store)
    for apart in ("s3://bucket/store-of-it", "s3://bucket/store/epochs/out/store", "s3://other/store", "/bucket/store"):
        outputs.check_apart(apart)


def test_two_sinks_do_not_write_to_one_place_under_two_names() -> None:
    from abscli.engine.runnable import graph_faults

    graph = topology("s3://bucket/out")
    twice = msgspec.structs.replace(graph, operators=(
        *graph.operators,
        msgspec.structs.replace(graph.operators[1], id="other", connector={"type": "jsonl", "path": "s3a://bucket/out/"}),
    ))  # fmt: skip
    assert any("both write to" in fault.message for fault in graph_faults(twice))


# -- steps of an attempt that loses the sink between its look and its request ---------------------------------


class Sink:
    """A sink in a bucket with parts of two attempts; `lost` is what an attempt does that has lost it meanwhile."""

    def __init__(self, uri: str) -> None:
        self.bucket = SinkBucket(uri)

    def claim(self, number: int, *line: Stretch) -> Any:
        claim = new_claim(number, job="j", store="/s", attempt=number, attempt_id=line[0].id, line=line, claimed=now())
        self.bucket.put_claim(claim)
        return claim

    def upload(self, part: PartId, data: bytes = b"{}\n") -> SinkFile:
        id = self.bucket.uploads.begin(object_name(part), "digest")
        etag = self.bucket.uploads.put(object_name(part), id, 1, data)
        return SinkFile("out", part.name, len(data), 1, "digest", UploadFacts(object_name(part), id, (etag,)))

    def moves(self, claim: Any) -> BucketMoves:
        return BucketMoves(self.bucket, claim, lambda: EngineStopped("overtaken", hint=None))

    def names(self) -> set[str]:
        return {one.object for one in self.bucket.shown()}


@pytest.fixture(params=[MOTO, AZURITE, GOOGLE])
def sink(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(str(bucket_place(use(servers.get(request.param), monkeypatch)).root))


def lose_at(patch: pytest.MonkeyPatch, owner: type, name: str, then: Callable[[], None]) -> None:
    """Just before the first call of a request, all this happens."""
    plain, happened = getattr(owner, name), list[bool]()

    def call(*arguments: Any, **options: Any) -> Any:
        if not happened:
            happened.append(True)
            then()
        return plain(*arguments, **options)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("is_theirs", [True, False])
def test_what_it_completes_too_late_goes_unless_the_new_owner_relies_on_it(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, is_theirs: bool
) -> None:
    part = PartId(IDS[0], part_name(0, 5))
    first, file = sink.claim(1, Stretch(IDS[0], 1, None)), sink.upload(part)

    def overtaken() -> None:
        line = (Stretch(IDS[1], 7, None), Stretch(IDS[0], 1, 5 if is_theirs else 4))
        moves = sink.moves(sink.claim(2, *line))
        if is_theirs:
            moves.complete([(part, file)])

    lose_at(monkeypatch, type(sink.bucket.uploads), "complete", overtaken)
    with pytest.raises(EngineStopped, match="overtaken"):
        sink.moves(first).complete([(part, file)])
    assert sink.names() == ({object_name(part)} if is_theirs else set())
    assert (part in sink.bucket.superseded()) != is_theirs


def test_what_it_takes_away_too_late_is_shown_under_another_name(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PartId(IDS[0], part_name(0, 5))
    zero = sink.claim(1, Stretch(IDS[0], 1, None))
    sink.moves(zero).complete([(part, sink.upload(part))])
    lost = sink.claim(2, Stretch(IDS[1], 7, None), Stretch(IDS[0], 1, 4))

    def overtaken() -> None:
        sink.moves(sink.claim(3, Stretch("c" * 32, 9, None), Stretch(IDS[0], 1, 5))).rename(sink.bucket.shown())

    lose_at(monkeypatch, ObjectStorage, "delete_all", overtaken)
    sink.moves(lost).set_aside(sink.bucket.shown())
    assert sink.names() == {object_name(part, 3)}


def test_a_part_that_an_older_claim_may_still_remove_gets_another_name(sink: Sink) -> None:
    """The owner of the older claim rolls back past the part. It was stopped before it removed the part."""
    kept, doubtful = PartId(IDS[0], part_name(0, 4)), PartId(IDS[0], part_name(0, 5))
    first = sink.claim(1, Stretch(IDS[0], 1, None))
    files = {part: sink.upload(part) for part in (kept, doubtful)}
    sink.moves(first).complete(files.items())
    before = sink.claim(2, Stretch(IDS[1], 7, None), Stretch(IDS[0], 1, 4))
    line = Stretch(IDS[0], 1, 5)
    claim = sink.claim(3, Stretch("c" * 32, 9, None), line)
    wanted = Wanted([line], files, 0, files, IDS)
    found = Examined("out", sink.bucket, before, before.line, wanted, None, None)
    settle_bucket(found, sink.bucket, claim, sink.moves(claim))
    assert sink.names() == {object_name(kept), object_name(doubtful, 3)}


def test_what_it_shows_again_too_late_is_not_shown_twice(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PartId(IDS[0], part_name(0, 5))
    zero = sink.claim(1, Stretch(IDS[0], 1, None))
    sink.moves(zero).complete([(part, sink.upload(part))])
    sink.moves(zero).set_aside(sink.bucket.shown())
    line = Stretch(IDS[0], 1, 5)
    lost = sink.claim(2, Stretch(IDS[1], 7, None), line)

    def overtaken() -> None:
        sink.moves(sink.claim(3, Stretch("c" * 32, 9, None), line)).show_again([part])

    lose_at(monkeypatch, ObjectStorage, "copy", overtaken)
    with pytest.raises((EngineStopped, NotFound)):
        sink.moves(lost).show_again([part])
    assert sink.names() == {object_name(part, 3)}


def test_of_two_names_of_a_part_one_stays(sink: Sink) -> None:
    part = PartId(IDS[0], part_name(0, 5))
    first = sink.claim(1, Stretch(IDS[0], 1, None))
    sink.moves(first).complete([(part, sink.upload(part))])
    sink.bucket.storage.copy(object_name(part), object_name(part, 1))
    moves = sink.moves(sink.claim(2, Stretch(IDS[0], 1, None)))
    moves.rename(sink.bucket.shown())
    assert sink.names() == {object_name(part, 2)}


@pytest.mark.parametrize("lines", [GOOGLE, TESTBENCH], indirect=True)
def test_what_is_shown_and_waits_as_well_waits_no_more_when_the_job_goes_on(lines: Lines) -> None:
    killed(lines, "copied", 3)
    bucket = SinkBucket(lines.out)
    assert bucket.waiting().keys() & {one.part for one in bucket.shown()}
    assert findings(lines) == {Code.ABANDONED_UPLOAD}
    lines.resume(epochs=1)
    assert not bucket.waiting().keys() & {one.part for one in bucket.shown()}
    lines.resume()
    assert lines.wrong() == {}
    assert not bucket.waiting()
    assert findings(lines) == set()


@pytest.mark.parametrize("lines", [GOOGLE], indirect=True)
def test_gc_takes_away_what_is_shown_and_waits_as_well(lines: Lines) -> None:
    killed(lines, "copied", 3)
    left = [upload.uri for upload in left_uploads(lines.store(), [lines.out])]
    assert set(left) <= set(collected(lines))
    shown = SinkBucket(lines.out).shown()
    assert not SinkBucket(lines.out).waiting().keys() & {one.part for one in shown}
    lines.resume()
    assert {one.object for one in shown} <= {one.object for one in SinkBucket(lines.out).shown()}
    assert lines.wrong() == {}


def test_what_was_stopped_before_googles_copy_shows_nothing_that_is_gone(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process was killed when it had shown a part, before it took what was staged away; another was stopped just
    before it would show it, while a third, which has the sink now, shows it under a name of its own. The second must
    not get as far as to show it once more: it may be killed there."""
    sink = Sink(str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root))
    part = PartId(IDS[0], part_name(0, 5))
    line = Stretch(IDS[0], 1, None)
    lost, file = sink.claim(1, line), sink.upload(part)
    plain, shows = ObjectStorage.copy, list[str]()

    def copy(self: ObjectStorage, path: str, to: str, *, replace: bool = True) -> None:
        plain(self, path, to, replace=replace)
        shows.append(to)

    def overtaken() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStorage, "delete", lambda self, path: None)
            sink.moves(lost).complete([(part, file)])
        assert sink.bucket.waiting()
        assert sink.names() == {object_name(part)}
        sink.moves(sink.claim(2, Stretch(IDS[1], 7, None), line)).rename(sink.bucket.shown())
        monkeypatch.setattr(ObjectStorage, "copy", copy)

    lose_at(monkeypatch, type(sink.bucket.uploads), "complete", overtaken)
    with pytest.raises(EngineStopped, match="overtaken"):
        sink.moves(lost).complete([(part, file)])
    assert shows == []
    assert sink.names() == {object_name(part, 2)}
    assert not sink.bucket.waiting()
