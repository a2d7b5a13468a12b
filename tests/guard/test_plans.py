"""Whatever a plan names: `restore --dry-run` and `report` contact no host, and open nothing but the plan and a store on
this machine that it names."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.guard.checkpoints import FLINK, places
from tests.guard.victim import Victim
from tests.support.spark.data import copy_of


def sealed(plan: dict[str, Any]) -> bytes:
    """The bytes of a plan, with the digest that its reader asks for."""
    body = json.dumps({name: value for name, value in plan.items() if name != "sha256"}, indent=2).removesuffix("\n}")
    return (body + f',\n  "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n').encode()


def elsewhere(somebody: Victim) -> list[str]:
    """Folders on other hosts."""
    return [place for place in places(somebody) if not place.startswith("file:")]


@pytest.fixture(params=["flink", "spark"])
def plan(request: pytest.FixtureRequest, somebody: Victim, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A plan that somebody hands over, of a store that the victim has; and where it is to be written."""
    store = somebody.work / "store"
    shutil.rmtree(store, ignore_errors=True)
    if request.param == "flink":
        (job,) = (FLINK / "hashmap-checkpoint").glob("*/")
        shutil.copytree(job, store)
    else:
        shutil.copytree(copy_of("file_compact", tmp_path), store)
    made = tmp_path / "plan.json"
    assert main(["plan-recovery", str(store), "--out", str(made), "--quiet"]) == 0
    return somebody.work / "plan.json", json.loads(made.read_bytes())


def carried_out(somebody: Victim, file: Path, changed: dict[str, Any], *more: object) -> str:
    """What `restore --dry-run` does that it may not."""
    file.write_bytes(sealed(changed))
    out = somebody.place("out", "restored")
    command = ["restore", file.name, "--to", out / "copy", "--dry-run", *more]
    ran = somebody.run(command, reads=[file, somebody.work / "store"], changes=[out])
    assert "Traceback" not in ran.err
    assert ran.code != 1, ran.err
    return ran.report()


def test_a_plan_of_a_store_here_holds(somebody: Victim, plan: tuple[Path, dict[str, Any]]) -> None:
    file, made = plan
    assert carried_out(somebody, file, made) == ""


@pytest.mark.sample(1)
def test_a_plan_that_names_a_store_on_another_host(somebody: Victim, plan: tuple[Path, dict[str, Any]]) -> None:
    file, made = plan
    for place in elsewhere(somebody):
        assert carried_out(somebody, file, {**made, "store": place}) == "", place


@pytest.fixture
def lacking(somebody: Victim, plan: tuple[Path, dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """A plan of a checkpoint of Flink that has lost a file since, so that the file is looked for."""
    if plan[1]["system"] != "flink":
        pytest.skip("only plans of Flink name where files may be")
    next(path for path in (somebody.work / "store").glob("chk-*/*") if path.name != "_metadata").unlink()
    return plan


def read_with(made: dict[str, Any], option: str, value: str) -> dict[str, Any]:
    """The plan as made for a store that was opened with one more option."""
    nothing: dict[str, list[str]] = {"search": [], "path_map": [], "uid": [], "type": [], "topology": []}
    return {**made, "read": {**nothing, **made["read"], option: [value]}}


@pytest.mark.sample(1)
@pytest.mark.parametrize("option", ["search", "path_map"])
def test_a_plan_that_has_files_looked_for_on_another_host(
    somebody: Victim, lacking: tuple[Path, dict[str, Any]], option: str
) -> None:
    file, made = lacking
    for place in elsewhere(somebody):
        value = f"/mnt={place}" if option == "path_map" else place
        assert carried_out(somebody, file, read_with(made, option, value)) == "", place


def test_a_plan_that_has_a_secret_file_read_as_a_graph(
    somebody: Victim, lacking: tuple[Path, dict[str, Any]]
) -> None:
    file, made = lacking
    secret = somebody.home / ".ssh" / "id_ed25519"
    file.write_bytes(sealed(read_with(made, "topology", str(secret))))
    ran = somebody.run(["restore", file.name, "--to", somebody.out / "copy", "--dry-run"])
    assert secret.read_text().strip() not in ran.out + ran.err
    assert ran.received == {}


@pytest.mark.sample(1)
@pytest.mark.integration
def test_a_page_of_a_plan_that_names_a_store_on_another_host(
    somebody: Victim, plan: tuple[Path, dict[str, Any]]
) -> None:
    file, made = plan
    out = somebody.place("out", "page")
    for place in places(somebody):
        file.write_bytes(sealed({**made, "store": place}))
        ran = somebody.run(["report", file.name, "--out", out / "page.html"], reads=[file], changes=[out])
        assert ran.report() == "", place


