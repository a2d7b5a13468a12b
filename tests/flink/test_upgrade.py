"""Whether another Flink restores a snapshot: what rules say of real ones, and that a real Flink 2.3 agrees."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores.flink.upgrading.upgrade import _walk
from abscli.stores.flink.upgrading.upgrade_rules import TARGETS, Step, of_unknown_class
from formats.flink.store import FlinkStore
from formats.flink.types import serializers
from formats.flink.types.serializer_classes import BASE, CEP, CLASS_ONLY, COMPOSITE, JAVA, SCALA, SIMPLE
from formats.flink.types.serializers import Snapshot
from tests.support.archives import extract
from tests.support.flink.cases import HASHMAP, OLD, UNALIGNED
from tests.support.flink.java import compiled, java_job
from tests.support.flink.matrix import CASES, Case, needs, unpack
from tests.support.flink.starts import starts
from tests.support.flink.truth import DATA
from tests.support.flink.venv import flink_jars
from tests.support.schemas import checked

on_flink = pytest.mark.usefixtures("jvm")

KRYO = {"uuid": "does not", "when": "does not", "any": "does not", "prices": "unknown"}
"""States of the matrix that Kryo wrote (tests/flink_java/MatrixJob.java), and what becomes of them."""

FROM_1_TO_2 = Step(4, (2, 2))


def asked(capsys: pytest.CaptureFixture[str], store: Path, target: str, code: int = 0) -> dict[str, Any]:
    done = main(["validate", str(store), "--for", target, "-o", "json"])
    out, err = capsys.readouterr()
    assert done == code, err
    return checked(out)


def verdicts(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(state["operator"], state["state"]): state["verdict"] for state in report["states"]}


@pytest.fixture(scope="module")
def matrix() -> Path:
    return unpack()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in ("hashmap", "rocksdb") and case.kind == "savepoint"],
    ids=str,
)
def test_state_of_kryo_does_not_go_from_1_to_2_and_all_else_does(
    matrix: Path, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(case)
    old = case.version == "1.20"
    for target in ("flink:2.0", "flink:2.2", "flink:2.3"):
        if case.version == "2.3" and target == "flink:2.0":
            continue
        report = asked(capsys, matrix / case.folder, target, code=3 if old else 0)
        for (_, state), verdict in verdicts(report).items():
            assert verdict == (KRYO.get(state, "restores") if old else "restores"), state
    rows = {state["state"]: state["rows"] for state in report["states"]}
    assert (rows["uuid"], rows["map"]) == (20, 40)


def test_nothing_goes_back_to_an_older_flink_whose_metadata_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked(capsys, HASHMAP, "flink:1.20", code=3)
    assert {state["verdict"] for state in report["states"]} == {"does not"}
    assert {why["rule"] for state in report["states"] for why in state["reasons"]} >= {"metadata-version"}


def test_the_same_release_restores_all_but_what_only_its_class_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, HASHMAP, "flink:2.3")["verdict"] == "restores"
    assert asked(capsys, OLD, "flink:1.20")["verdict"] == "restores"


def test_records_in_flight_and_sql_are_not_known_to_go_to_what_may_be_another_minor_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Flink 2.1, 2.2 and 2.3 write the same version of the metadata: which of them it was, nothing says."""
    sql = next((DATA / "sql").iterdir())
    for snapshot, rule in ((UNALIGNED, "in-flight"), (sql, "sql")):
        for target in ("flink:2.0", "flink:2.1", "flink:2.2", "flink:2.3"):
            report = asked(capsys, snapshot, target, code=3)
            rules = {why["rule"] for state in report["states"] for why in state["reasons"]}
            assert rule in rules, target
            assert (report["verdict"] == "does not") is (target == "flink:2.0")


def test_sql_state_of_operators_with_the_same_id_in_the_plan_of_the_job_restores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan says that the query has the same operators; `rows` of --schema checks the types of its columns."""
    store = next((DATA / "sql").iterdir())
    operators = FlinkStore(str(store)).metadata(FlinkStore(str(store)).resolve(None)).operators
    nodes = [{"id": operator.id, "parallelism": 1, "description": "GroupAggregate"} for operator in operators]
    plan, declared = tmp_path / "plan.json", tmp_path / "rows.yaml"

    def verdicts(*nodes: dict[str, Any], code: int, options: tuple[str, ...] = ()) -> dict[str, str]:
        plan.write_text(json.dumps({"plan": {"nodes": nodes}}))
        words = ["validate", str(store), "--for", "flink:2.2", "--topology", str(plan), *options, "-o", "json"]
        assert main(words) == code
        return {state["state"]: state["verdict"] for state in checked(capsys.readouterr().out)["states"]}

    assert set(verdicts(*nodes, code=0).values()) == {"restores"}
    lost = next(operator.id for operator in operators if operator.id.startswith("45cf"))
    found = verdicts(*(node for node in nodes if node["id"] != lost), code=3)
    assert {state for state, verdict in found.items() if verdict == "unknown"} == {"left-records", "right-records"}
    declared.write_text(json.dumps({"version": 1, "rows": {"deduplicate-state": ["BOOLEAN"]}}))
    found = verdicts(*nodes, code=3, options=("--schema", str(declared)))
    assert {state for state, verdict in found.items() if verdict == "does not"} == {"deduplicate-state"}


def test_only_flink_2_0_writes_its_version_of_the_metadata() -> None:
    assert not Step(5, (2, 0)).may_be_other
    assert all(Step(number, target).may_be_other for number in (3, 4, 5, 6) for target in TARGETS if number != 5)


def test_the_way_through_a_type_leads_to_what_does_not_restore() -> None:
    kryo = Snapshot("kryo", f"{JAVA}kryo.KryoSerializerSnapshot", 2, "java.util.List", number=2)
    own = Snapshot("kryo", f"{JAVA}kryo.KryoSerializerSnapshot", 2, "shop.Price", number=2)
    text = Snapshot("string", f"{BASE}StringSerializer$StringSerializerSnapshot", 3)
    order = Snapshot("pojo", f"{JAVA}PojoSerializerSnapshot", 2, "shop.Order", (text, kryo), ("name", "items"))
    listed = Snapshot("list", f"{BASE}ListSerializerSnapshot", 1, nested=(order,))
    either = Snapshot("tuple", f"{JAVA}TupleSerializerSnapshot", 2, nested=(listed, own))
    assert [(why.rule.name, why.path) for why in _walk(either, "value: ", FROM_1_TO_2)] == [
        (
            "collection-serializer",
            "value: TupleSerializer.f0 -> ListSerializer[] -> PojoSerializer.items -> KryoSerializer (java.util.List)",
        ),
        ("kryo-2", "value: TupleSerializer.f1 -> KryoSerializer (shop.Price)"),
    ]
    assert not list(_walk(either, "value: ", Step(5, (2, 3))))


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (f"{CEP}sharedbuffer.SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot",
         ["serializer-unknown", "serializer-gone", "serializer-gone"]),
        (f"{JAVA}PojoSerializer$PojoSerializerConfigSnapshot", ["serializer-gone"] * 3),
        ("shop.PriceSerializerConfigSnapshot", ["serializer-unknown"] * 3),
    ],
)  # fmt: skip
def test_a_serializer_that_only_an_old_flink_wrote_is_gone(name: str, rules: list[str]) -> None:
    assert [of_unknown_class(Step(3, target), name).name for target in ((1, 20), (2, 0), (2, 3))] == rules


def test_the_page_says_the_verdict_first_and_why(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(case for case in CASES if (case.version, case.name, case.kind) == ("1.20", "hashmap", "savepoint"))
    assert main(["validate", str(matrix / case.folder), "--for", "flink:2.2"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "Flink 2.2 does not restore it." in out
    assert "kryo-2: does not: Flink 1 wrote it with Kryo 2: Flink 2, with Kryo 5, fails" in out
    assert "uuid: value: KryoSerializer (java.util.UUID)" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "flink:9.9"], "'9.9' is not a Flink release that can be checked"),
        (["--for", "flink:02.3"], "'02.3' is not a Flink release that can be checked"),
        (["--for", "flink:2.03"], "'2.03' is not a Flink release that can be checked"),
        (["--for", "flink:2.3.01"], "'2.3.01' is not a Flink release that can be checked"),
        (["--for", "flink:\u0662.3"], "'\u0662.3' is not a Flink release that can be checked"),
        (["--for", "flink:2.3\n"], "is not a Flink release that can be checked"),
        (["--for", "2.2"], "write flink:VERSION"),
        (["--for", "spark:4"], "flink"),
        (["--for", "flink:2.2", "--quick"], "--quick"),
    ],
)
def test_what_cannot_be_asked_is_said(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(HASHMAP), *words]) == 2
    assert message in capsys.readouterr().err


# -- a real Flink -----------------------------------------------------------------------------------------


def classes_of(jar: zipfile.ZipFile) -> Iterator[str]:
    """Of a jar and of the jars in it."""
    for name in jar.namelist():
        if name.endswith(".class"):
            yield name.removesuffix(".class").replace("/", ".")
        elif name.endswith(".jar"):
            yield from classes_of(zipfile.ZipFile(io.BytesIO(jar.read(name))))


@on_flink
@pytest.mark.soak
def test_the_jars_of_flink_2_3_have_every_serializer_but_those_that_rules_name() -> None:
    there: set[str] = set()
    for path in flink_jars():
        with zipfile.ZipFile(path) as jar:
            there.update(classes_of(jar))
    ours = {*SIMPLE, *COMPOSITE, *CLASS_ONLY, *serializers._BODIES}
    # of Avro and of Python, which have jars of their own
    apart = {name for name in ours if any(part in name for part in ("formats.avro", ".python.", "ByteArrayWrapper"))}
    missing = ours - there - apart
    named = {
        name
        for name in missing
        for why in _walk(Snapshot(SIMPLE.get(name, "?"), name, 1), "", Step(4, (2, 3)))
        if why.rule.verdict.value == "does not"
    }
    assert missing == named
    assert any(name.startswith(SCALA) for name in missing)


@on_flink
@pytest.mark.minutes
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler")
def test_flink_2_3_makes_of_state_what_is_said(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A savepoint of Flink 1.20; then its copy without two of the states that Kryo wrote. Of the others one has other
    values then, and nothing says so."""
    case = next(case for case in CASES if (case.version, case.name, case.kind) == ("1.20", "hashmap", "savepoint"))
    before = FlinkStore(str(matrix / case.folder))
    report = verdicts(asked(capsys, matrix / case.folder, "flink:2.3", code=3))
    (owner,) = {operator for operator, state in report if state == "uuid"}
    lines = [f"- {{operator: {owner}, state: {state}}}\n" for state in ("uuid", "when")]
    (tmp_path / "changes.yaml").write_text("version: 1\nremoved:\n" + "".join(lines))
    copy = tmp_path / "copy"
    changes = ["--changes", str(tmp_path / "changes.yaml"), "--to", str(copy)]
    assert main(["rewrite", str(matrix / case.folder), *changes]) == 0
    capsys.readouterr()
    class_path = compiled(tmp_path / "classes", "MatrixJob.java")

    def starts(snapshot: Path) -> tuple[bool, str]:
        """Whether the job has come to the state of every key; its log."""
        (tmp_path / "out").mkdir(exist_ok=True)
        options = [
            f"execution.state-recovery.path=file://{snapshot}", "restart-strategy.type=none",
            "state.backend.type=hashmap",
        ]  # fmt: skip
        log = tmp_path / f"{snapshot.name}.log"
        with java_job(class_path, log, "MatrixJob", tmp_path / "out", "CANONICAL", *options) as process:
            while process.poll() is None and "switched from state FAILING to FAILED" not in log.read_text():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
            return process.poll() == 0, log.read_text()

    restored, log = starts(matrix / case.folder)
    assert not restored
    assert "Could not restore keyed state backend" in log
    assert "KryoSerializer" in log
    restored, log = starts(copy)
    assert restored, log[-3000:]

    after = FlinkStore(re.findall(r"SAVEPOINT file:(\S+)", log)[-1])
    for (operator, state), verdict in report.items():
        if operator != owner or state in ("uuid", "when"):
            continue
        same = rows(before, owner, state) == rows(after, owner, state)
        assert same is (verdict != "does not"), state


@on_flink
@pytest.mark.minutes
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler")
def test_flink_2_3_does_not_start_from_state_of_the_scala_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(DATA / "values.tar.xz") as archive:
        extract(archive, tmp_path)
    (savepoint,) = (tmp_path / "scala" / "sp").iterdir()
    report = asked(capsys, savepoint, "flink:2.3", code=3)
    rules = {why["rule"] for state in report["states"] if state["verdict"] == "does not" for why in state["reasons"]}
    assert rules >= {"scala-api"}
    taken, log = starts(compiled(tmp_path / "classes", "MatrixJob.java"), tmp_path / "job", savepoint, "hashmap")
    assert taken is None
    assert "org.apache.flink.api.scala.typeutils" in log


def rows(store: FlinkStore, operator: str, state: str) -> list[str]:
    """Of a state, in no order."""
    batches = store.state(store.resolve(None), operator, state)
    return sorted(str(row) for batch in batches for row in batch.to_pylist())
