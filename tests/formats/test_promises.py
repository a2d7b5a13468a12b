"""Every sink that can be run says what it promises."""

from __future__ import annotations

import pytest

from abscli.engine.runnable import SINK_TYPES
from formats.job.model import Kind, Operator
from formats.job.promises import Promise, promise_of


def operator(kind: Kind, **connector: object) -> Operator:
    return Operator("out", kind, 1, 128, connector=connector)


@pytest.mark.parametrize("type", SINK_TYPES)
def test_every_type_has_a_promise(type: str) -> None:
    assert promise_of(operator(Kind.SINK, type=type)) in Promise


def test_what_is_no_sink_and_what_is_not_known_promises_nothing() -> None:
    assert promise_of(operator(Kind.SOURCE, type="jsonl")) is None
    assert promise_of(operator(Kind.SINK, type="carrier-pigeon")) is None
    assert promise_of(operator(Kind.SINK, type=["jsonl"])) is None
