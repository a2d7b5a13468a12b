"""A query whose sink has a name (sink evolution of Spark 4.3): its commits are of version 3, and made anew as such."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores.spark.commits import commit_of
from formats.errors import Damaged, NoRecovery
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.logs.offsets import parse_commit
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command
from tests.support.spark import cases
from tests.support.spark.words import CONFS, add_files, counts, stream

FILES = 4
SINK_NAMES = "spark.sql.streaming.queryEvolution.enableSinkEvolution"


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS, SINK_NAMES):
        session.conf.unset(key)


def go_on(session: Any, home: Path, checkpoint: Path, sink: str) -> dict[str, int]:
    """The word count with a name for its sink."""
    seen: dict[str, int] = {}

    def take(frame: Any, batch: int) -> None:
        seen.update({row["word"]: row["count"] for row in frame.collect()})

    writer = stream(session, home / "input").writeStream.foreachBatch(take).outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer._jwrite.name(sink)  # PySpark has no method for it yet
    writer.start().awaitTermination()
    return seen


@pytest.mark.parametrize("conf", ["hdfs", pytest.param("ids", marks=pytest.mark.soak)])
def test_a_query_with_a_name_for_its_sink_is_read_checked_and_brought_back(
    conf: str, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    add_files(tmp_path / "input", range(FILES))
    cases.set_conf(session, CONFS[conf])
    session.conf.set(SINK_NAMES, "true")
    assert go_on(session, tmp_path, checkpoint, "first") == counts(tmp_path / "input")
    add_files(tmp_path / "input", range(FILES, FILES + 2))
    assert go_on(session, tmp_path, checkpoint, "second") == counts(tmp_path / "input")
    assert (checkpoint / "commits/0").read_text().startswith("v3\n")
    assert main(["validate", str(checkpoint), "-q"]) == 0
    capsys.readouterr()
    raw = result_of("inspect", capsys, f"{checkpoint}@latest")["raw"]
    assert {name: sink["isActive"] for name, sink in raw["sinks"].items()} == {"first": False, "second": True}
    _, out, _ = run_command("inspect", capsys, f"{checkpoint}@latest")
    assert "no longer in use" in out
    # A commit that is lost is made anew with the sinks of the commits around it; where these differ it is not.
    written = (checkpoint / f"commits/{FILES - 2}").read_bytes()
    (checkpoint / f"commits/{FILES - 2}").unlink()
    assert main(["plan-recovery", f"{checkpoint}@{FILES - 2}", "--out", str(tmp_path / "p"), "-q"]) == 0
    assert main(["restore", str(tmp_path / "p"), "--to", str(copy), "-q"]) == 0
    own = copy / f"commits/{FILES - 2}"
    assert parse_commit(own.read_bytes(), "") == parse_commit(written, "")
    capsys.readouterr()
    assert go_on(session, tmp_path, copy, "first") == counts(tmp_path / "input")
    (checkpoint / f"commits/{FILES}").unlink()
    (checkpoint / f"commits/{FILES - 1}").unlink()
    code, _, err = run_command("plan-recovery", capsys, f"{checkpoint}@{FILES - 1}")
    assert (code, f"batch {FILES - 1} does not give exact results" in err) == (4, True)
    with pytest.raises(NoRecovery, match="name other sinks than each other"):
        commit_of(gather(Checkpoint(LocalStorage(checkpoint))), FILES - 1)


@pytest.mark.parametrize("sinks", ["[]", '{"first":1}', '"first"'])
def test_sinks_that_are_no_objects_are_damage(sinks: str) -> None:
    with pytest.raises(Damaged, match="sinks is not an object by name"):
        parse_commit(f'v3\n{{"nextBatchWatermarkMs":0,"sinkMetadataMap":{sinks}}}'.encode(), "commits/0")
