"""A plug-in of pytest that notes which functions of some packages each test runs, and for how long.

`-p tests.mutants.calls`. ABS_MUTANTS_CALLS: the file that gets {test: {"seconds", "calls": {path: [first line]}}};
ABS_MUTANTS_OF: packages, by comma.
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


def pytest_sessionfinish() -> None:
    Path(os.environ["ABS_MUTANTS_CALLS"]).write_text(json.dumps(_found))
