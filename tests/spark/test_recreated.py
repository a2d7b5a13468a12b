"""A topic or a table that was deleted and created again: told from wrong offsets, and continued with the state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.report.findings import Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.logs.places import why_recreated
from formats.storage import LocalStorage
from tests.support.schemas import checked
from tests.support.spark.data import copy_of

KAFKA = "incidents/kafka_topic_made_anew"
TABLE = "3adf155d-19a7-468e-88cc-5f408e43ec0f"


def check(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def planned(root: Path, capsys: pytest.CaptureFixture[str], *options: str, batch: str = "") -> tuple[int, Any]:
    code = main(["plan-recovery", f"{root}{batch}", "-o", "json", "--out", str(root) + ".json", *options])
    out, err = capsys.readouterr()
    return code, checked(out)["body"] if code == 0 else json.loads(out or err)


def last_lines(root: Path) -> dict[int, Any]:
    return {int(p.name): json.loads(p.read_text().splitlines()[-1]) for p in root.glob("offsets/[0-9]*")}


def test_a_topic_whose_offsets_begin_again_was_recreated(tmp_path: Path) -> None:
    report = check(copy_of(KAFKA, tmp_path))
    assert not report.damaged
    assert report.restorable == (0, 1, 2, 3, 4)
    (finding,) = report.all_findings
    assert (finding.code, finding.path) == (Code.INPUT_RECREATED, "offsets/2")
    assert finding.message == "source 0 went back in orders-0 from 520 to 3 (and 1 more), and went on from there"


def set_offsets(root: Path, batch: int, offset: object) -> None:
    path = root / f"offsets/{batch}"
    *head, _ = path.read_text().split("\n")
    path.write_text("\n".join([*head, json.dumps(offset)]))


@pytest.mark.parametrize("batch", [2, 4])
def test_offsets_that_went_back_for_one_batch_only_are_damage(batch: int, tmp_path: Path) -> None:
    """Of the newest batch nobody knows; of another one the next batch goes on from where it was before."""
    root = copy_of(KAFKA, tmp_path)
    for number, at in enumerate((500, 520, 540, 560, 580)):
        set_offsets(root, number, {"orders": {"0": at, "1": at}})
    assert check(root).all_findings == ()
    set_offsets(root, batch, {"orders": {"0": 3, "1": 590}})
    report = check(root)
    assert (Code.POSITION_REGRESSED, f"offsets/{batch}") in {(one.code, one.path) for one in report.all_findings}
    assert batch not in report.restorable


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_the_query_goes_on_in_the_new_topic_if_told_so(
    batch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of(KAFKA, tmp_path)
    at = f"@{batch}"
    if batch:
        code, error = planned(root, capsys, "--set-offset", "0:orders-0=0", batch=at)
        assert (code, "--recreated 0" in error["hint"]) == (4, True)
    code, body = planned(root, capsys, "--recreated", "0", "--set-offset", "0:orders-1=2", batch=at)
    assert code == 0
    positions = {one["split"]: (one["to"], one["recreated"]) for one in body["positions"]}
    assert positions == {"orders-0": (0, True), "orders-1": (2, True)}
    to = tmp_path / "copy"
    assert main(["restore", str(root) + ".json", "--to", str(to)]) == 0
    assert "not read of the old one is lost" in " ".join(plan_text(root, capsys, at).split())
    # Spark starts where the newest batch ended, and looks up the one before it, too.
    expected = {"orders": {"0": 0, "1": 2}}
    assert last_lines(to) == dict.fromkeys(range(max(0, batch - 1), batch + 1), expected)
    assert check(to).all_findings == ()


def plan_text(root: Path, capsys: pytest.CaptureFixture[str], at: str) -> str:
    capsys.readouterr()
    assert main(["plan-recovery", f"{root}{at}", "--recreated", "0"]) == 0
    return capsys.readouterr().out


def test_the_query_goes_on_in_the_new_table_if_told_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, to = copy_of("kind_delta", tmp_path, sidecars=False), tmp_path / "copy"
    newest = max(last_lines(root))
    code, error = planned(root, capsys, "--recreated", "0")
    assert (code, "_delta_log" in error["hint"]) == (4, True)
    code, _ = planned(root, capsys, "--recreated", f"0={TABLE}")
    assert code == 0
    assert main(["restore", str(root) + ".json", "--to", str(to)]) == 0
    expected = {"sourceVersion": 1, "reservoirId": TABLE, "reservoirVersion": 0, "index": -1,
                "isStartingVersion": False}  # fmt: skip
    assert last_lines(to) == {newest - 1: expected, newest: expected}
    assert check(to).latest_restorable == newest


@pytest.mark.parametrize(("options", "code"), [
    (["--recreated", ""], 2), (["--recreated", "0=a b"], 2), (["--recreated", "7"], 4), (["--recreated", "0=x"], 4),
    (["--recreated", "0", "--keep-in-flight"], 2),
])  # fmt: skip
def test_what_is_no_recreated_source_is_refused(
    options: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(copy_of(KAFKA, tmp_path), capsys, *options)[0] == code


def test_a_file_source_cannot_be_recreated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = planned(copy_of("words", tmp_path), capsys, "--recreated", "0")
    assert (code, "cannot be set" in error["message"]) == (4, True)


def test_another_id_is_another_table() -> None:
    old, new = (
        json.dumps({"sourceVersion": 1, "reservoirId": id, "reservoirVersion": at, "index": -1}) for id, at in
        (("a", 3), ("b", 0))
    )  # fmt: skip
    assert why_recreated(old, new, None) == "reads table b, and read table a before"
    assert why_recreated(old, old, None) is None
