"""A process that knows the token of the attempt sends what no worker sends: a worker fails, the job does not."""

from __future__ import annotations

import contextlib
import json
import random
import re
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from abscli.cli.main import main
from abscli.engine.channels.door import Door, greeting
from abscli.engine.channels.inbox import Inbox
from abscli.engine.channels.incoming import Incoming
from abscli.engine.channels.line import PLAIN, Line
from abscli.engine.channels.messages import (
    Alive,
    ChannelHello,
    Failed,
    Patience,
    SourceFinished,
    Status,
    TaskAcked,
    check_sender,
    decode_greeting,
    decode_to_coordinator,
    decode_to_worker,
    decode_unheard,
)
from abscli.engine.channels.vigil import Vigil
from abscli.engine.channels.wire import BEAT_BYTES, HEADER, Frame
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineStopped
from abscli.engine.job import run_job
from abscli.engine.local.hearing import Hearing
from abscli.engine.local.ledger import Ledger, Pieces
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import Recovered, Recovering
from abscli.engine.worker import _failure
from abscli.protocol.events import ProtocolError
from abscli.protocol.gossip import Gossip
from formats.errors import Unreachable
from formats.ids import ChannelId, TaskId
from tests.engine.recovering.test_executors import JOB
from tests.support.doors import HELLO, closes, turned_away
from tests.support.jobs.kills import check_counted, fan, write_rows
from tests.support.jobs.small import inline, open_gate

BETWEEN = ChannelId(TaskId("same", 0), TaskId("counts", 1))
"""A channel of `fan` from worker 0 to worker 1."""

WITHIN = ChannelId(TaskId("same", 0), TaskId("counts", 0))
"""A channel of `fan` whose ends are both in worker 0."""

ROWS = pa.record_batch({"key": ["forged"] * 3, "id": [1, 2, 3]})
OTHERS = pa.record_batch({"word": ["forged"]})


def frame(kind: int, number: int = 0, payload: bytes | pa.Buffer = b"") -> bytes:
    data = bytes(payload)
    return HEADER.pack(kind, number, len(data)) + data


def records(first: int, rows: pa.RecordBatch = ROWS) -> bytes:
    return frame(Frame.RECORDS, first, rows.serialize())


SCHEMA = frame(Frame.SCHEMA, 0, ROWS.schema.serialize())
FORGED = {
    "records that are numbered too high": SCHEMA + records(4_677),
    "records that are numbered 0": SCHEMA + records(0),
    "records that come twice": SCHEMA + records(1) + records(1),
    "records without a schema": records(1),
    "a schema that is not one": frame(Frame.SCHEMA, 0, b"\xff" * 40),
    "records that are not Arrow's": SCHEMA + frame(Frame.RECORDS, 1, b"\xff" * 40),
    "records that are cut off": SCHEMA + frame(Frame.RECORDS, 1, bytes(ROWS.serialize())[:-64]),
    "records that are empty": SCHEMA + records(1, ROWS.slice(0, 0)),
    "another schema": SCHEMA + frame(Frame.SCHEMA, 0, OTHERS.schema.serialize()),
    "a watermark of three bytes": frame(Frame.BARRIER, 1, b"abc"),
    "a barrier that is past": frame(Frame.BARRIER, 0),
    "a message": frame(Frame.CONTROL, 0, b"{}"),
    "a trace": frame(Frame.TRACE, 0, b"{}\n"),
}


class Stranger:
    """Connects to the first workers that start, before any peer does, and sends `data` for a channel.

    attempts: a connection for each of these.
    """

    def __init__(self, data: bytes, workers: int, attempts: range) -> None:
        self.sockets: list[socket.socket] = []
        self._data = data
        self._workers = workers
        self._attempts = attempts

    def meet(self, door: Door) -> None:
        self._workers -= 1
        for attempt in self._attempts if self._workers >= 0 else ():
            sock = socket.create_connection(door.address, timeout=60)
            self.sockets.append(sock)
            sock.sendall(greeting(door._token, ChannelHello(BETWEEN, attempt)) + self._data)


Intrude = Callable[..., None]


@pytest.fixture
def intrude(monkeypatch: pytest.MonkeyPatch) -> Iterator[Intrude]:
    """Have a stranger meet the workers that start: intrude(data, workers, attempts)."""
    strangers: list[Stranger] = []
    made = Door.__init__

    def noted(door: Door, *args: Any, backlog: int, **more: Any) -> None:
        made(door, *args, backlog=backlog, **more)
        if backlog == 1024:  # of a worker
            for stranger in strangers:
                stranger.meet(door)

    def intrude(data: bytes, workers: int = 2, attempts: range = range(1, 2)) -> None:
        strangers.append(Stranger(data, workers, attempts))

    monkeypatch.setattr(Door, "__init__", noted)
    yield intrude
    for stranger in strangers:
        for sock in stranger.sockets:
            sock.close()


def write_input(folder: Path) -> dict[str, int]:
    """The input of `fan`, which the job reads without pauses."""
    counts = write_rows(folder, files=40)
    open_gate(folder)
    return counts


@pytest.mark.sample(5)
@pytest.mark.parametrize("forged", FORGED)
def test_a_job_restarts_and_is_exact_when_a_channel_brings(forged: str, tmp_path: Path, intrude: Intrude) -> None:
    counts = write_input(tmp_path)
    intrude(FORGED[forged])
    news: list[object] = []
    outcome = run_job(fan(), str(tmp_path / "store"), inline(tmp_path), on_news=news.append)
    assert outcome.finished
    causes = [one.cause for one in news if isinstance(one, Recovering)]
    assert len(causes) == 1
    # A past barrier is ignored, but its sender holds the place of the real one, which is turned away.
    assert causes[0].startswith("worker 0: lost the connection" if forged == "a barrier that is past" else "worker 1: ")
    check_counted(tmp_path, counts)


@pytest.mark.parametrize("recovery", list(Scope))
@pytest.mark.parametrize("payload", [b"", b"\xff" * 400])
def test_a_job_restarts_and_is_exact_under_every_recovery(
    payload: bytes, recovery: Scope, tmp_path: Path, intrude: Intrude
) -> None:
    """With `local`, frames end with schedules, which are parsed first."""
    counts = write_input(tmp_path)
    intrude(SCHEMA + frame(Frame.RECORDS, 1, payload))
    news: list[object] = []
    outcome = run_job(fan(), str(tmp_path / "store"), inline(tmp_path, recovery=recovery), on_news=news.append)
    assert outcome.finished
    assert len([one for one in news if isinstance(one, Recovering)]) == 1
    check_counted(tmp_path, counts)


def test_a_channel_that_is_forged_in_every_attempt_ends_the_job_with_exit_code_6(
    tmp_path: Path, intrude: Intrude, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    intrude(SCHEMA + records(7), 100, range(1, 9))
    code = main(["run", "job.yaml", "--store", "store", "--engine", "inline", "--workers", "2", "-o", "json"])
    *_, last = capsys.readouterr().err.strip().splitlines()
    error = json.loads(last)
    assert code == error["code"] == 6
    assert error["name"] == "stopped"
    # The end of a worker's connection can be seen before its last report.
    reason = rf"worker 1(: {BETWEEN}: expected record 1, got record 7| on .* was lost); tasks have been restarted"
    assert re.match(reason, error["message"])
    assert "--resume" in error["hint"]


def test_a_job_that_may_not_restart_ends_with_the_error_of_the_channel(tmp_path: Path, intrude: Intrude) -> None:
    write_input(tmp_path)
    intrude(SCHEMA + records(7))
    with pytest.raises(EngineStopped, match=r"expected record 1, got record 7$"):
        run_job(fan(), str(tmp_path / "store"), inline(tmp_path, restarts=0))


@pytest.mark.integration
@pytest.mark.parametrize("channel", [BETWEEN, WITHIN, ChannelId(TaskId("other", 0), TaskId("counts", 1))])
def test_nobody_takes_the_place_of_a_sender_that_is_connected(channel: ChannelId, tmp_path: Path) -> None:
    """Neither of one that is in another worker nor of one that is in the same, which never connects."""
    counts = write_rows(tmp_path)
    services: list[Service] = []
    refused: list[bool] = []
    news: list[object] = []

    def knock(progress: Progress) -> None:
        if progress.epochs < 1 or refused:
            return
        (service,) = services
        for address in service.crew.addresses:
            with socket.create_connection(address, timeout=60) as sock:
                sock.sendall(greeting(service.token, ChannelHello(channel, 1)))
                refused.append(turned_away(sock))
        open_gate(tmp_path)

    outcome = run_job(
        fan(), str(tmp_path / "store"), inline(tmp_path), knock, services.append, on_news=news.append
    )  # fmt: skip
    assert outcome.finished
    assert refused == [True, True]
    assert not [one for one in news if isinstance(one, Recovering)]
    check_counted(tmp_path, counts)


def ack(task: TaskId) -> bytes:
    message = TaskAcked(task, 1, 1, 0, False, 0, (), ())
    return frame(Frame.CONTROL, 0, msgspec.json.encode(message))


MESSAGES = {
    "no JSON": frame(Frame.CONTROL, 0, b"{"),
    "no message": frame(Frame.CONTROL, 0, b'{"type":"Go"}'),
    "no text": frame(Frame.CONTROL, 0, b'{"type":"Failed","worker":1,"message":"\xff\xff"}'),
    "too deep": frame(Frame.CONTROL, 0, b'{"type":"Failed","other":' + b"[" * 100_000),
    "records": SCHEMA,
    "an ack of a task that is none": ack(TaskId("other", 1)),
    "an ack of a task of the other worker": ack(TaskId("counts", 0)),
    "the failure of the other worker": frame(
        Frame.CONTROL, 0, msgspec.json.encode(Failed(0, "forged", None, 1))
    ),
    "an exit code of 0": frame(Frame.CONTROL, 0, b'{"type":"Failed","worker":1,"message":"","hint":null,"code":0}'),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("sent", MESSAGES)
def test_a_job_restarts_and_is_exact_when_a_worker_sends_its_driver(sent: str, tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    services: list[Service] = []
    sockets: list[socket.socket] = []
    news: list[object] = []

    def pretend(progress: Progress) -> None:
        if progress.epochs >= 1 and not sockets:
            (service,) = services
            sockets.append(socket.create_connection(service.address, timeout=60))
            hello = msgspec.structs.replace(HELLO, worker=1, incarnation="forged")
            sockets[0].sendall(greeting(service.token, hello) + MESSAGES[sent])

    def hear(one: object) -> None:
        news.append(one)
        if isinstance(one, Recovered):
            open_gate(tmp_path)

    outcome = run_job(fan(), str(tmp_path / "store"), inline(tmp_path), pretend, services.append, on_news=hear)
    assert outcome.finished
    assert closes(sockets[0])
    sockets[0].close()
    assert [one for one in news if isinstance(one, Recovered)]
    check_counted(tmp_path, counts)


FORGED_HELLOS: list[dict[str, Any]] = [
    {"port": 0}, {"port": 70_000}, {"pid": 0}, {"pid": -1}, {"pid": 2**40}, {"worker": -1}, {"host": "a" * 70},
    {"host": ""}, {"worker": 9}, {"launch": 5},
]  # fmt: skip
"""The driver would dial its port, and end its process: 0 and -1 are groups of processes."""


def test_workers_whose_hellos_are_invalid_are_turned_away(tmp_path: Path) -> None:
    counts = write_input(tmp_path)
    sockets: list[socket.socket] = []
    news: list[object] = []

    def pretend(service: Service) -> None:
        for forged in FORGED_HELLOS:
            sockets.append(socket.create_connection(service.address, timeout=60))
            sockets[-1].sendall(greeting(service.token, msgspec.structs.replace(HELLO, **forged)))

    outcome = run_job(fan(), str(tmp_path / "store"), inline(tmp_path), on_service=pretend, on_news=news.append)
    assert outcome.finished
    assert [turned_away(sock) for sock in sockets] == [True] * len(FORGED_HELLOS)
    for sock in sockets:
        sock.close()
    assert not [one for one in news if isinstance(one, Recovering)]
    check_counted(tmp_path, counts)


BAD_JSON = [b"", b"{", b"null", b"\xff", b'"\xff"', b'{"type":"Hello","host":"\xff"}', b"[" * 200_000, b"1" * 10_000]


@pytest.mark.parametrize("decode", [decode_greeting, decode_to_coordinator, decode_to_worker, decode_unheard])
@pytest.mark.parametrize("payload", BAD_JSON)
def test_a_message_that_is_none_is_an_error_of_the_protocol(decode: Any, payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="cannot parse the message"):
        decode(memoryview(payload))


def test_a_message_speaks_for_its_own_worker_only() -> None:
    check_sender(Status(1, 0, 0), 1, 2)
    check_sender(SourceFinished(TaskId("rows", 3), 1), 1, 2)
    for message in (Status(0, 0, 0), SourceFinished(TaskId("rows", 2), 1)):
        with pytest.raises(ProtocolError, match="of worker 0 on the connection of worker 1"):
            check_sender(message, 1, 2)


def test_an_error_of_the_protocol_fails_its_worker_and_may_pass() -> None:
    failed = _failure(3, ProtocolError("expected record 6, got record 5"))
    assert (failed.worker, failed.code, failed.lost) == (3, EngineStopped.exit_code, True)
    assert failed.message == "worker 3: expected record 6, got record 5"


@pytest.mark.parametrize(("machine", "lost"), [("h2", True), ("head", False)])
def test_a_worker_that_cannot_reach_the_store_is_replaced_unless_it_is_on_the_driver_s_host(
    machine: str, lost: bool
) -> None:
    error = Unreachable("no answer: timed out", path="s3://bucket/store", hint="check the network")
    failed = _failure(1, error, machine=machine, driver="head")
    assert failed.message == f"worker 1 on {machine}: s3://bucket/store: no answer: timed out"
    assert (failed.code, failed.lost, failed.hint) == (EngineStopped.exit_code, lost, "check the network")


@pytest.mark.parametrize(
    "data", [frame(Frame.CONTROL, 1, b"{"), frame(Frame.CONTROL, 1, b'"\xff"'), frame(Frame.CONTROL, 1, b"[" * 16_000),
             HEADER.pack(Frame.CONTROL, 1, BEAT_BYTES + 1), HEADER.pack(9, 1, 0)],
)  # fmt: skip
def test_a_heartbeat_that_is_none_ends_its_connection_and_no_other(data: bytes) -> None:
    vigil = Vigil(Patience.of(15.0), lambda unheard: None)
    try:
        pairs = [socket.socketpair() for _ in range(2)]
        for number, (_, far) in enumerate(pairs):
            vigil.admit(Alive(number, 0, str(number)), Line(far))
        (bad, _), (good, _) = pairs
        for near in (bad, good):
            near.settimeout(60)
        bad.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while bad.recv(4096):
                pass
        good.sendall(frame(Frame.CONTROL, 5))
        assert good.recv(HEADER.size) == HEADER.pack(Frame.CONTROL, 5, 0)
    finally:
        vigil.close()
        for near, far in pairs:
            near.close()
            far.close()


def test_schedules_that_are_cut_off_are_an_error_of_the_protocol() -> None:
    topology = fan()
    ledger = Ledger(topology, 2, 1, 1 << 20)
    for data in (b"", b"\1\0\0\0", b"abc\xff\xff\xff\xff", b"x" * 9 + b"\x09\0\0\0"):
        with pytest.raises(ProtocolError):
            ledger.hear(memoryview(data), BETWEEN)
    with pytest.raises(ProtocolError):
        Pieces(topology).check(b"\xff" * 50)
    gossip = Gossip([TaskId("counts", 1)], 0, 1)
    with pytest.raises(ProtocolError, match="end within an entry of 50"):
        gossip.hear((0).to_bytes(2, "little") + (1).to_bytes(4, "little") + (50).to_bytes(4, "little") + bytes(8))


@pytest.mark.parametrize("hears", [False, True])
def test_whatever_bytes_a_channel_brings_the_outcome_is_rows_an_end_or_an_error_of_the_protocol(hears: bool) -> None:
    rng = random.Random(20_261_127)
    outcomes: set[str] = set()
    tail = (0).to_bytes(4, "little") if hears else b""
    whole = bytearray(
        SCHEMA
        + frame(Frame.RECORDS, 1, bytes(ROWS.serialize()) + tail)
        + frame(Frame.BARRIER, 1, tail)
        + frame(Frame.RECORDS, 4, bytes(ROWS.serialize()) + tail)
    )
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randrange(4)):
            # Not the lengths of frames: most of these wait for gigabytes.
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        outcomes.add(taken(bytes(data), hears))
    assert outcomes >= {"rows", "ProtocolError"}
    assert outcomes <= {"rows", "ProtocolError", "ended"}


def taken(data: bytes, hears: bool) -> str:
    """What comes of these bytes on a connection which ends after them."""
    inbox = Inbox(BETWEEN, back=False)
    hearing = None
    if hears:
        ledger = Ledger(fan(), 2, 1, 1 << 20)
        ledger.receives_from(inbox, 0)
        hearing = Hearing(ledger, inbox, lambda message: None)
    near, far = socket.socketpair()
    ended: list[object] = []
    with near, selectors.DefaultSelector() as selector:
        incoming = Incoming(
            PLAIN.accepted(far), selector, inbox, full=lambda inbox: False, closed=ended.append, hearing=hearing
        )
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        try:
            while not ended:
                for key, mask in selector.select(60):
                    key.data(mask)
        except ProtocolError:
            return "ProtocolError"
        finally:
            incoming.connection.close()
    return "rows" if inbox.next_record == 7 else "ended"
