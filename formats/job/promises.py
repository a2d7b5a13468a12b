"""What a sink can promise, and which source can go back, by the type of its connector."""

from __future__ import annotations

from enum import StrEnum

from formats.job.model import Kind, Operator


class Promise(StrEnum):
    """What becomes of an epoch's rows in a sink.

    TWO_PHASE: prepared with the snapshot, shown by one step that can be taken again once the manifest names them.
    IDEMPOTENT: written after the manifest, with an id or a key by which a second time changes nothing.
    AT_LEAST_ONCE: written after the manifest, and again where it is not known whether they were.
    """

    TWO_PHASE = "two-phase"
    IDEMPOTENT = "idempotent"
    AT_LEAST_ONCE = "at-least-once"


_BY_TYPE = {"jsonl": Promise.TWO_PHASE, "csv": Promise.TWO_PHASE, "parquet": Promise.TWO_PHASE,
            "postgres": Promise.TWO_PHASE, "stdout": Promise.AT_LEAST_ONCE,
            "delta": Promise.IDEMPOTENT, "iceberg": Promise.IDEMPOTENT, "kafka": Promise.IDEMPOTENT}  # fmt: skip
_BY_MODE = {("postgres", "upsert"): Promise.IDEMPOTENT}
"""Where one of a type does otherwise."""


def promise_of(operator: Operator) -> Promise | None:
    """What a sink promises; None of what is no sink, or has a connector that is not known."""
    if operator.kind is not Kind.SINK or operator.connector is None:
        return None
    type = operator.connector.get("type")
    if not isinstance(type, str):
        return None
    mode = operator.connector.get("mode")
    return (_BY_MODE.get((type, mode)) if isinstance(mode, str) else None) or _BY_TYPE.get(type)


def is_staged(operator: Operator) -> bool:
    """Tell whether a sink's rows wait in the store, and are written to the target after the manifest."""
    return promise_of(operator) in (Promise.IDEMPOTENT, Promise.AT_LEAST_ONCE)


def prepares_rows(operator: Operator) -> bool:
    """Tell whether a sink's rows wait in its target, in transactions that are committed after the manifest."""
    in_transactions = (operator.connector or {}).get("type") == "postgres"
    return in_transactions and promise_of(operator) is Promise.TWO_PHASE


def is_delivered(operator: Operator) -> bool:
    """Tell whether the driver delivers a sink's rows. Others are part files, which become visible where they are."""
    return is_staged(operator) or prepares_rows(operator)


_EXACT = frozenset({"text", "jsonl", "csv", "parquet", "arrow", "nexmark", "generate", "kafka", "postgres"})


def goes_back(operator: Operator) -> bool | None:
    """Whether a source can be set to a position of an epoch, and reads the same from there; None where that is not
    known, or it is no source."""
    if operator.kind is not Kind.SOURCE or operator.connector is None:
        return None
    type = operator.connector.get("type")
    return True if isinstance(type, str) and type in _EXACT else None
