"""A command run in this process: its exit code and what it prints. Tests make `run` and `result` by partial."""

from __future__ import annotations

from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.schemas import checked


def run_command(command: str, capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, on which no traceback may stand."""
    code = main([command, *map(str, args)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def result_of(command: str, capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    """The JSON of a command that ends well and without a word, held against its schema."""
    code, out, err = run_command(command, capsys, *args, "-o", "json")
    assert (code, err) == (0, "")
    return checked(out)


def answer_of(command: str, capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> dict[str, Any]:
    """The JSON of a command that ends with this code, whatever it says beside, held against its schema."""
    ended, out, err = run_command(command, capsys, *args, "-o", "json")
    assert ended == code, err
    return checked(out)
