"""A plug-in of pytest that notes which functions of some packages each test runs, and for how long.

`-p tests.mutants.calls`. ABS_MUTANTS_CALLS: a folder, in which each process of pytest makes a file
{test: {"seconds", "calls": {path: [first line]}}} of the tests that have passed; ABS_MUTANTS_OF: packages, by comma.
What a test's children call is not noted.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

_ROOT = str(Path(__file__).resolve().parent.parent.parent) + os.sep
_PACKAGES = tuple(_ROOT + name + os.sep for name in os.environ["ABS_MUTANTS_OF"].split(","))
_found: dict[str, dict[str, Any]] = {}
_calls: set[CodeType] = set()
_bad: set[str] = set()


def _enter(frame: FrameType, event: str, argument: object) -> None:
    _calls.add(frame.f_code)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _calls.clear()
    began = time.monotonic()
    threading.settrace(_enter)
    sys.settrace(_enter)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        calls = defaultdict(list)
        for code in _calls:
            if code.co_filename.startswith(_PACKAGES):
                calls[code.co_filename.removeprefix(_ROOT)].append(code.co_firstlineno)
        _found[item.nodeid] = {"seconds": round(time.monotonic() - began, 3), "calls": calls}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _bad.add(report.nodeid)


def pytest_sessionfinish() -> None:
    passed = {name: calls for name, calls in _found.items() if name not in _bad}
    (Path(os.environ["ABS_MUTANTS_CALLS"]) / f"{os.getpid()}.json").write_text(json.dumps(passed))
