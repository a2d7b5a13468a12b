"""What `validate --for --schema` says of a changed class, and what a real Flink makes of it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from abscli.cli.main import main
from tests.support.flink.java import PATIENCE, SOURCES, compiled, java_job
from tests.support.flink.venv import VERSION
from tests.support.maven import jars
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]


@dataclass(frozen=True)
class Change:
    """A class as the job has it, and as its next version declares it.

    state: what the job keeps.
    before, after: fields by name, a schema of Avro, or types by position.
    renamed: the class of the next version, where it is another.
    rules: that speak of it; starts: what Flink does, and what they come to where nothing is unknown.
    """

    state: str
    before: dict[str, str] | str
    after: dict[str, str] | str
    rules: tuple[str, ...]
    starts: bool
    renamed: str = "shop.Order"


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
ORDER = {"id": "long", "note": "String", "n": "int"}
CHANGES = {
    "unchanged": Change("order", ORDER, ORDER, (), True),
    "field-removed": Change("order", ORDER, {"id": "long", "n": "int"}, ("field-removed",), True),
    "field-added": Change("order", ORDER, ORDER | {"more": "double"}, ("field-added",), True),
    "field-type": Change("order", ORDER, ORDER | {"n": "long"}, ("field-type",), False),
    "class-renamed": Change("order", ORDER, ORDER, ("class-renamed",), False, "mall.Order"),
    "key-changed": Change("key", {"id": "long"}, {"id": "long", "more": "long"}, ("key-changed",), False),
    "row-unchanged": Change("row", "long,string", "long,string", (), True),
    "row-longer": Change("row", "long,string", "long,string,string", ("row-changed",), False),
    "row-type": Change("row", "long,string", "long,long", ("row-changed",), False),
    "sql-unchanged": Change("sql", "BIGINT,STRING", "BIGINT,STRING", ("sql",), True),
    "sql-longer": Change("sql", "BIGINT,STRING", "BIGINT,STRING,STRING", ("row-changed", "sql"), False),
    "sql-type": Change("sql", "BIGINT,STRING", "BIGINT,BIGINT", ("row-changed", "sql"), False),
    "avro-evolved": Change("reflect", {"id": "long", "n": "long"}, {"id": "long"}, ("avro-evolved",), True),
    "avro-incompatible": Change(
        "reflect", {"id": "long", "n": "long"}, {"id": "long", "n": "int"}, ("avro-incompatible",), False
    ),
    "avro-generic": Change(
        "avro", record(ID), record(ID, {"name": "more", "type": "long", "default": 7}), ("avro-generic",), False
    ),
    "avro-generic-incompatible": Change(
        "avro", record(ID), record(ID, {"name": "more", "type": "string"}), ("avro-incompatible",), False
    ),
}

CLASSES = {"order": "Order", "key": "User", "tag": "Tag"}


def source(package: str, name: str, fields: dict[str, str]) -> str:
    """A Pojo of Java. Of a key `id` says which it is, and nothing else of it."""
    members = "".join(f"  public {kind} {field};\n" for field, kind in fields.items())
    return (
        f"package {package};\n\npublic class {name} {{\n{members}\n  public {name}() {{}}\n\n"
        f"  public {name}(long id) {{\n    {'this.id = id;' if fields.get('id') == 'long' else ''}\n  }}\n\n"
        "  @Override\n  public int hashCode() {\n    return Long.hashCode(id);\n  }\n\n"
        f"  @Override\n  public boolean equals(Object o) {{\n    return o instanceof {name} && (({name}) o).id == id;\n"
        "  }\n}\n"
    )


class Job:
    """A version of the job: its classes, compiled. what: the state that it keeps."""

    def __init__(self, folder: Path, what: str, fields: dict[str, str], schema: str, order: str) -> None:
        self.folder, self.what, self.schema = folder, what, schema
        own = [jar for jar in jars(f"org.apache.flink:flink-avro:{VERSION}") if not jar.name.startswith("flink-core")]
        files = []
        for state, name in CLASSES.items():
            package = order.rpartition(".")[0] if state == "order" else "shop"
            path = folder / "sources" / package / f"{name}.java"
            path.parent.mkdir(parents=True, exist_ok=True)
            mine = state == what or (state, what) == ("order", "reflect")  # the same class, which Avro writes
            path.write_text(source(package, name, fields if mine else {"id": "long"}))
            files.append(path)
        job = folder / "sources" / "ClassesJob.java"
        job.write_text((SOURCES / "ClassesJob.java").read_text().replace("CLASS", order))
        self.class_path = compiled(folder / "classes", job, *files, more=own)

    def run(self, start: Path | None = None, *more: str) -> tuple[Path | None, str]:
        """The savepoint that it took once it had touched all state; None if it did not come to that; its log."""
        options = [*more, *([f"execution.state-recovery.path=file://{start}"] if start is not None else [])]
        log = self.folder / "log"
        with java_job(
            self.class_path, log, "ClassesJob", self.folder / "savepoints", self.what, self.schema, *options
        ) as process:
            process.wait(PATIENCE)
        text = log.read_text(errors="replace")
        taken = re.findall(r"SAVEPOINT file:(\S+)", text)
        return (Path(taken[-1]) if taken and "TOUCHED" in text else None), text


def version(folder: Path, change: Change, fields: dict[str, str] | str, order: str = "shop.Order") -> Job:
    if isinstance(fields, str):
        return Job(folder, change.state, {"id": "long"}, fields, order)
    return Job(folder, change.state, fields, "", order)


def declared(folder: Path, change: Change) -> Path:
    """What `--schema` is given of the next version."""
    path = folder / "declared"
    if change.state in ("row", "sql"):
        path.write_text(json.dumps({"rows": {change.state: str(change.after).split(",")}}))
    elif isinstance(change.after, str):
        path.write_text(change.after)
    elif change.state == "reflect":
        path.write_text(record(*({"name": name, "type": kind} for name, kind in change.after.items())))
    else:
        name = change.renamed if change.state == "order" else f"shop.{CLASSES[change.state]}"
        path.write_text(json.dumps({"version": 1, "classes": {name: change.after}}))
    return path


@pytest.fixture(scope="module")
def savepoints() -> dict[str, Path]:
    """Of the job as it was, made once for each state that it keeps, and kept here."""
    return {}


@pytest.mark.soak
@pytest.mark.parametrize("name", CHANGES)
def test_flink_starts_with_a_changed_class_or_not_as_it_is_said(
    name: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    savepoints: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    change = CHANGES[name]
    if change.state not in savepoints:
        taken, log = version(tmp_path_factory.mktemp(change.state), change, change.before).run()
        assert taken is not None, log[-3000:]
        savepoints[change.state] = taken
    snapshot = savepoints[change.state]
    words = ["--for", f"flink:{VERSION}", "--schema", str(declared(tmp_path, change)), "-o", "json"]
    code = main(["validate", str(snapshot), *words])
    report = checked(capsys.readouterr().out)
    spoken = {why["rule"] for state in report["states"] for why in state["reasons"]}
    assert spoken == set(change.rules)
    # That another minor release may have written it is not known to be well.
    assert code == (0 if change.starts and "sql" not in change.rules else 3)

    taken, log = version(tmp_path, change, change.after, change.renamed).run(snapshot)
    assert (taken is not None) is change.starts, log[-3000:]


@pytest.mark.soak
@pytest.mark.sample(1)
@pytest.mark.parametrize(("backend", "starts"), [("hashmap", True), ("rocksdb", False)])
def test_another_class_of_the_keys_of_a_map_starts_on_the_heap_alone(
    backend: str, starts: bool, tmp_path: Path, savepoints: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The snapshot does not say with which backend the job will run, so that the verdict is that it is not known."""
    change = Change("tag", {"id": "long"}, {"id": "long", "more": "long"}, ("map-key-changed",), starts)
    if "tag" not in savepoints:
        taken, log = version(tmp_path / "before", change, change.before).run()
        assert taken is not None, log[-3000:]
        savepoints["tag"] = taken
    words = ["--for", f"flink:{VERSION}", "--schema", str(declared(tmp_path, change)), "-o", "json"]
    assert main(["validate", str(savepoints["tag"]), *words]) == 3
    report = checked(capsys.readouterr().out)
    spoken = {(why["rule"], why["verdict"]) for state in report["states"] for why in state["reasons"]}
    assert spoken == {("map-key-changed", "unknown")}
    after = version(tmp_path / "after", change, change.after)
    taken, log = after.run(savepoints["tag"], f"state.backend.type={backend}")
    assert (taken is not None) is starts, log[-3000:]
    assert starts or "key schema has changed" in log
