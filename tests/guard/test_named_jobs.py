"""Where the user names a job file the targets of its sinks are asked, and nothing else: what the target itself or the
store says of code, hosts and credentials does not count."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from abscli.cli.main import main
from tests.guard.events import Action
from tests.guard.stores import evil_module
from tests.guard.victim import Ran, Victim, evil_library

JOB = """version: 1
job: words
operators:
  lines: {{source: {{type: text, path: in/*.txt}}}}
  out: {{from: lines, sink: {sink}}}
"""
COMMANDS = (("validate", "store"), ("report", "store", "--out", "OUT/r.html"), ("gc", "store", "--keep-last", "1"))


@pytest.fixture
def job(somebody: Victim, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A job of the victim's own that has run with a sink in a folder; the sink of its file is another one now."""

    def made(sink: str) -> Path:
        for name in ("store", "out", "in", "lake"):
            shutil.rmtree(somebody.work / name, ignore_errors=True)
        (somebody.work / "in").mkdir()
        (somebody.work / "in" / "a.txt").write_text("a\nb\n")
        file = somebody.work / "job.yaml"
        file.write_text(JOB.format(sink="{type: delta, path: out}"))
        monkeypatch.chdir(somebody.work)
        assert main(["run", "job.yaml", "--store", "store", "--engine", "inline", "--quiet"]) == 0
        file.write_text(JOB.format(sink=sink))
        return file

    return made


def asked(somebody: Victim, file: Path, *targets: Path) -> list[Ran]:
    """What the commands do that ask the targets of a job."""
    out = somebody.place("out", str(len(list(somebody.out.iterdir()))))
    return [
        somebody.run(
            [*(word.replace("OUT", str(out)) for word in words), "--job", file.name],
            reads=[file, somebody.work / "store", somebody.home / ".pyiceberg.yaml", somebody.work / "in", *targets],
            changes=[out, somebody.work / "store" / "lock", *targets],
        )
        for words in COMMANDS
    ]


def test_the_target_of_a_job_that_was_named_is_asked(somebody: Victim, job: Callable[[str], Path]) -> None:
    file = job("{type: delta, path: out}")
    for ran in asked(somebody, file, somebody.work / "out"):
        assert ran.report() == ""
    validated = asked(somebody, file, somebody.work / "out")[0]
    assert any(event.target.startswith(str(somebody.work / "out")) for event in validated.events)


@pytest.mark.sample(2)
@pytest.mark.integration
@pytest.mark.parametrize(
    "name", ["py-io-impl", "s3.access-key-id", "s3.endpoint", "token", "write.py-location-provider.impl"]
)
def test_an_iceberg_table_chooses_neither_code_nor_hosts_nor_credentials(
    somebody: Victim, job: Callable[[str], Path], name: str
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    file = job("{type: iceberg, table: shop.out, warehouse: lake}")
    lake = somebody.place("work", "lake")
    catalog = SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.out", pa.schema([("line", pa.string())]))
    location = Path(table.metadata_location.removeprefix("file://"))
    catalog.close()
    metadata = json.loads(location.read_text())
    metadata["properties"][name] = {
        "py-io-impl": "evil_module.Io", "write.py-location-provider.impl": "evil_module.Places",
        "s3.endpoint": f"http://{somebody.listeners.at('s3')}",
    }.get(name, "evil")  # fmt: skip
    location.write_text(json.dumps(metadata))
    evil_module(somebody.work / "evil_module.py")
    for ran in asked(somebody, file, lake):
        assert ran.report() == ""
        assert "Traceback" not in ran.err
    assert not (somebody.work / "evil_module.ran").exists()


@pytest.mark.integration
def test_the_token_of_a_catalog_goes_to_its_own_address_alone(somebody: Victim, job: Callable[[str], Path]) -> None:
    at = somebody.listeners.at
    for catalog in ("catalog: prod, ", ""):
        file = job(f'{{type: iceberg, table: a.b, {catalog}uri: "http://{at("iceberg")}"}}')
        for ran in asked(somebody, file):
            assert "iceberg" not in ran.received, ran.report()
            assert not any(secret.startswith("PYICEBERG") for secret in ran.leaked)


def test_settings_of_kafka_name_no_library(somebody: Victim, job: Callable[[str], Path]) -> None:
    library = somebody.work / "evil.so"
    if not evil_library(library):
        pytest.skip("no C compiler is installed")
    settings = somebody.work / "evil.properties"
    settings.write_text(f"plugin.library.paths={library}\n")
    at = somebody.listeners.at("kafka")
    file = job(f'{{type: kafka, brokers: "{at}", topic: t, config: evil.properties}}')
    for ran in asked(somebody, file, settings):
        assert [event for event in ran.violations if event.action is Action.MAP] == []
        assert ran.received == {}
    assert not library.with_suffix(".ran").exists()
