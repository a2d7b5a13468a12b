"""Every sink that can be run says what it promises, every source whether it can go back."""

from __future__ import annotations

import pytest

from abscli.engine.runnable import SINK_TYPES
from abscli.engine.sources.making import SOURCE_TYPES
from formats.job.model import Kind, Operator
from formats.job.promises import Promise, goes_back, promise_of


def operator(kind: Kind, **connector: object) -> Operator:
    return Operator("out", kind, 1, 128, connector=connector)


@pytest.mark.parametrize("type", SINK_TYPES)
def test_every_type_has_a_promise(type: str) -> None:
    assert promise_of(operator(Kind.SINK, type=type)) in Promise


def test_what_is_no_sink_and_what_is_not_known_promises_nothing() -> None:
    assert promise_of(operator(Kind.SOURCE, type="jsonl")) is None
    assert promise_of(operator(Kind.SINK, type="carrier-pigeon")) is None
    assert promise_of(operator(Kind.SINK, type=["jsonl"])) is None


@pytest.mark.parametrize("type", SOURCE_TYPES)
def test_every_type_of_source_goes_back(type: str) -> None:
    assert goes_back(operator(Kind.SOURCE, type=type)) is True


def test_of_what_is_no_source_and_of_what_is_not_known_nobody_knows_whether_it_goes_back() -> None:
    assert goes_back(operator(Kind.SINK, type="jsonl")) is None
    assert goes_back(operator(Kind.SOURCE, type="carrier-pigeon")) is None
    assert goes_back(operator(Kind.SOURCE, type=["jsonl"])) is None
    assert goes_back(Operator("in", Kind.SOURCE, 1, 128)) is None
