"""Checkpoints without operators' metadata, as Spark wrote them before 4.0: then the columns tell what keeps a state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from abscli.report.findings import Code
from abscli.stores.spark.verdict import check_spark, judge
from formats.errors import UnsupportedVersion
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.spark.test_state import fingerprint, rows
from tests.support.spark.data import CASES, Case, copy_of, unpack

PLAIN = [case for case in CASES if not case.damaged and not any(
    "stateVarName" in read["options"] for read in case.truth.get("reads", ()))]  # fmt: skip
OF_VARIABLES = ["tws_row", "kind_lists_checksummed", "kind_avro"]
OTHERS = [case for case in PLAIN if case.name not in (*OF_VARIABLES, "tws_repartitioned", "kind_sst_6")]


def without_metadata(case: Case, folder: Path) -> Path:
    root = copy_of(case.name, folder)
    for path in root.glob("state/*/_metadata/*"):
        if path.is_file():
            path.unlink()
    return root


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_all_is_read_and_judged_as_with_it(case: Case, tmp_path: Path) -> None:
    lost, whole = without_metadata(case, tmp_path), unpack(case)
    reports = [check_spark(gather(Checkpoint(LocalStorage(root)))) for root in (lost, whole)]
    assert reports[0].restorable == reports[1].restorable
    assert reports[0].epochs == reports[1].epochs
    stores = [SparkStore(LocalStorage(root)) for root in (lost, whole)]
    newest = max(reports[1].restorable, default=None)
    for family in stores[1].families(newest) if newest is not None else ():
        if family.opaque is None and family.kind != "internal":
            read = [Counter(map(fingerprint, rows(store, newest or 0, str(family.operator.id), family.name)))
                    for store in stores]  # fmt: skip
            assert read[0] == read[1], family.name


def test_a_limit_has_its_place_in_the_first_partition() -> None:
    report = check_spark(gather(Checkpoint(LocalStorage(unpack(Case.of("limited"))))))
    assert not any(Code.MISPLACED_KEY in one.unchecked for one in report.epochs)


@pytest.mark.parametrize("name", OF_VARIABLES)
def test_variables_whose_kind_is_lost_are_not_read(name: str, tmp_path: Path) -> None:
    root = without_metadata(Case.of(name), tmp_path)
    for path in root.glob("state/*/_metadata/v2/*"):
        path.unlink()
    report, why = judge(gather(Checkpoint(LocalStorage(root))))
    newest = report.epochs[-1]
    # Not its files: Spark itself does not start without (4.3: STDS_FAILED_TO_READ_OPERATOR_METADATA).
    assert [one.path for one in newest.findings] == ["state/0/_metadata/v2"]
    assert Code.ROW_MISMATCH in newest.unchecked
    assert "metadata of operator 0" in why[newest.epoch]["row-mismatch"]
    assert [(one.code, one.path) for one in report.findings] == [(Code.MISSING_FILE, "state/0/_metadata/metadata")]
    store = SparkStore(LocalStorage(root))
    with pytest.raises(UnsupportedVersion, match="--engine spark"):
        list(store.state(newest.epoch, "0", store.families(newest.epoch)[0].name))
