"""What `validate --for --schema` says of a TTL that is switched on or off, and what real Flinks make of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.flink.java import SOURCES
from tests.support.flink.releases import STARTED, compiled_for, run
from tests.support.schemas import checked

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]


@pytest.mark.parametrize("release", STARTED)
def test_what_is_said_of_a_ttl_that_is_switched_is_what_flink_does(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class_path = compiled_for(STARTED[release], tmp_path, TtlJob=(SOURCES / "TtlJob.java").read_text())
    for kind in ("value", "list", "map"):
        for before, after in (("plain", "ttl"), ("ttl", "plain")):
            name = f"{kind}-{before}"
            savepoint, log = run(class_path, tmp_path / name, "TtlJob", tmp_path / "savepoints", kind, before)
            assert savepoint is not None, log[-2000:]
            declared = tmp_path / f"{name}.yaml"
            declared.write_text(json.dumps({"version": 1, "ttl": {"kept": after == "ttl"}}))
            _, out, _ = run_command(
                "validate", capsys, savepoint, "--for", f"flink:{release}", "--schema", declared, "-o", "json"
            )
            (state,) = [one for one in checked(out)["states"] if one["state"] == "kept"]
            start = f"execution.state-recovery.path=file://{savepoint}"
            taken, log = run(class_path, tmp_path / f"{name}-{after}", "TtlJob", tmp_path / "savepoints", kind, after,
                             start, start.replace("state-recovery", "savepoint"))  # fmt: skip
            assert (taken is not None) == (state["verdict"] == "restores"), (name, log[-2000:])
            if taken is not None:
                assert set(re.findall(r"READ (\d+)", log)) == {"1"}, "the values are there"
