"""A part that waits, of an epoch that was given up with the worker that made it: its rows come again in another part of
the same attempt, and it never shows, also when no manifest is left that says so."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.errors import EngineStopped
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.sinks.file_publisher import FilePublisher
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.engine.telemetry.news import News
from abscli.stores.native.plan import newest_whole
from abscli.stores.reasons import NoPlan
from formats.native.sink import SUPERSEDED, UNNAMED, SinkFolder
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.jobs.kills import Kills, check_rows, pipelines, write_rows
from tests.support.jobs.small import inline, open_gate

PATIENCE = 300.0


def with_a_stray(folder: Path, scope: Scope, monkeypatch: pytest.MonkeyPatch, *, is_cut_off: bool) -> str:
    """A worker was lost when it had staged a part of an epoch that the other one had not; its name.

    is_cut_off: the process ends when the next manifest is written, before it can put the part away.
    """
    released, strays = threading.Event(), list[str]()
    stage_plainly, discard_plainly = FolderSink._stage, FilePublisher.discard

    def stage(sink: FolderSink, file: Any, pending: Any) -> None:
        if sink._index and pending.epoch > 1:
            assert released.wait(PATIENCE)
        stage_plainly(sink, file, pending)

    def discard(publisher: FilePublisher, goes: Any) -> None:
        if is_cut_off and released.is_set():
            raise EngineStopped("cut off", hint=None)
        discard_plainly(publisher, goes)

    def is_staged(progress: Progress) -> bool:
        staged = [part for part in SinkFolder(str(folder / "out")).staged() if part.epoch.number > 1]
        strays[:] = [part.name for part in staged if part.epoch.number in progress.open_epochs][:1]
        return bool(strays)

    def hear(news: News) -> None:
        kills.news(news)
        if kills.begun:
            released.set()

    kills = Kills([(is_staged, [0])], folder)
    options = inline(folder, interval=0.05, keep=1, recovery=scope, workers=2)
    with monkeypatch.context() as patch, pytest.raises(EngineStopped) if is_cut_off else contextlib.nullcontext():
        patch.setattr(FolderSink, "_stage", stage)
        patch.setattr(FilePublisher, "discard", discard)
        run_job(pipelines(), str(folder / "store"), options, kills.progress, kills.meet, on_news=hear)
    open_gate(folder)
    assert len(kills.begun) == 1
    return strays[0]


def resume(folder: Path) -> None:
    whole = newest_whole(NativeStore(LocalStorage(folder / "store")))
    assert not isinstance(whole, NoPlan)
    run_job(pipelines(), str(folder / "store"), inline(folder, keep=1, workers=2, from_epoch=whole[0].facts.epoch))


@pytest.mark.parametrize("scope", [Scope.SUBGRAPH, Scope.FULL])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_it_never_shows(scope: Scope, is_cut_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = write_rows(tmp_path, files=40)
    name = with_a_stray(tmp_path, scope, monkeypatch, is_cut_off=is_cut_off)
    for _ in range(3):
        resume(tmp_path)
        check_rows(tmp_path, counts)
        assert (tmp_path / "out" / SUPERSEDED / UNNAMED / name).exists()
