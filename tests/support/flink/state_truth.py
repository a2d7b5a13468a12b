"""What Flink's own restored backends say of state, held against what is read here, row by row.

A truth file has one JSON object a line: an operator, a state and one key's value (or one subtask's operator state), as
a Java program found it after Flink had restored the snapshot. `tally` counts rows that are equal, that are shown as
opaque bytes or are hidden behind such, and that differ.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from formats.flink.state.columns import keyed_batches, operator_batch
from formats.flink.state.keyed import read_blocks
from formats.flink.state.keyed_tables import RowBlock
from formats.flink.state.operator import read_operator_state
from formats.flink.store import FlinkStore
from formats.flink.types.times import instant_text

Row = dict[str, Any]
Key = tuple[Any, ...]


def rows_of(store: FlinkStore, epoch: int) -> tuple[dict[Key, Any], Counter[tuple[str, str]]]:
    """Our rows by (operator, state, subtask, key, namespace), map state as a list of pairs; hidden entries by state."""
    found: dict[Key, Any] = {}
    hidden: Counter[tuple[str, str]] = Counter()
    streams = store.streams(epoch)
    for operator in store.metadata(epoch).operators:
        for subtask in operator.subtasks:
            if subtask.managed_keyed is not None:
                for block in read_blocks(subtask.managed_keyed, streams, operator.max_parallelism):
                    _keyed(found, hidden, operator.id, subtask.index, block)
            if subtask.managed_operator is not None:
                for rows in read_operator_state(subtask.managed_operator, streams):
                    assert rows.problem is None, rows.problem
                    at = (operator.id, rows.name, subtask.index)
                    table = operator_batch(subtask.index, rows).to_pylist()
                    found[at] = [
                        (row["map_key"], _value(row)) if rows.keys is not None else _value(row) for row in table
                    ]
    return found, hidden


def _keyed(
    found: dict[Key, Any], hidden: Counter[tuple[str, str]], operator: str, subtask: int, block: RowBlock
) -> None:
    assert block.problem is None, block.problem
    name = block.table.name
    if block.hidden is not None:
        hidden[operator, name] += block.hidden.entries or 0
        for other in block.hidden.states:
            hidden[operator, other] += 1
    for batch in keyed_batches([block]):
        for row in batch.to_pylist():
            key = tuple(_frozen(value) for column, value in row.items() if column.split(".")[0] == "key")
            window = tuple(_frozen(row[c]) for c in ("namespace", "window_start", "window_end") if c in row)
            at = (operator, name, subtask, block.group, key, window)
            if block.table.timers:
                found[(*at, row["timestamp"])] = row["timestamp"]
            elif block.table.is_map:
                found.setdefault(at, []).append((row["map_key"], _value(row)))
            else:
                found[at] = _value(row)


def _value(row: Row) -> Any:
    if row.get("value.opaque") is not None:
        return row["value.opaque"]
    if "ttl_last_access" in row:
        return {"last_access": row["ttl_last_access"], "value": row["value"]}
    return row["value"]


def _frozen(value: Any) -> Any:
    return json.dumps(value, default=str, sort_keys=True)


def tally(store: FlinkStore, epoch: int, truth: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Rows by (kind of state, `equal` | `opaque` | `different`), and what differs, in words."""
    ours, hidden = rows_of(store, epoch)
    counts: Counter[tuple[str, str]] = Counter()
    said: list[str] = []
    union: dict[tuple[str, str], list[Any]] = {}
    for at, rows in ours.items():
        if len(at) == 3:
            union.setdefault(at[:2], []).extend(rows)
    seen = set()
    for line in truth.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kind = row["kind"] if row["kind"] != "keyed" else f"keyed {row['type']}"
        kind = kind if kind != "operator" else f"operator {row['mode']}"
        at, expected = _expected(row)
        seen.add(at)
        if row["kind"] == "operator" and row["mode"] == "UNION":
            pairs = [[item, None] for item in expected]  # each subtask gets all, in any order
            verdict = compare([(item, None) for item in union.get(at[:2], [])], {"map": pairs})
        elif at in ours:
            verdict = compare(ours[at], expected)
        else:
            verdict = "opaque" if hidden[row["operator"], row["state"]] else "different"
        counts[kind, verdict] += 1
        if verdict == "different":
            said.append(f"{at}: Flink says {expected!r}, read: {ours.get(at)!r}")
    for at in ours.keys() - seen:
        if len(at) > 3:
            counts["not in the truth", "different"] += 1
            said.append(f"{at}: Flink has no such row")
    return counts, said


def _expected(row: Row) -> tuple[Key, Any]:
    if row["kind"] == "operator":
        return (row["operator"], row["state"], row["subtask"]), row["value"]
    key = row["key"]
    fields = key["row"] if isinstance(key, dict) and "row" in key else [key]
    namespace = row["namespace"]
    window: tuple[Any, ...] = ()
    if isinstance(namespace, dict) and "start" in namespace:
        window = (_frozen(namespace["start"]), _frozen(namespace["end"]))
    elif namespace is not None:
        window = (_frozen(namespace),)
    at = (row["operator"], row["state"], row["subtask"], row["key_group"], tuple(map(_frozen, fields)), window)
    if row["kind"] == "timer":
        return (*at, row["timestamp"]), row["timestamp"]
    return at, row["value"]


def compare(ours: Any, truth: Any) -> str:
    """`equal`, `opaque` or `different`."""
    verdicts = set(_verdicts(ours, truth))
    if "different" in verdicts:
        return "different"
    return "opaque" if "opaque" in verdicts else "equal"


def _verdicts(ours: Any, truth: Any) -> Iterator[str]:
    if isinstance(ours, dict) and ours.keys() == {"class", "length", "bytes"}:
        yield "opaque"
    elif isinstance(truth, dict) and "map" in truth:
        yield from _maps(ours, truth["map"])
    elif isinstance(truth, dict) and "row" in truth:
        if not isinstance(ours, dict) or ours.get("row_kind", "+I") != truth["row_kind"]:
            yield "different"
        else:
            yield from _sequence([value for name, value in ours.items() if name != "row_kind"], truth["row"])
    elif isinstance(truth, dict) and truth.keys() == {"ttl_user_value", "ttl_last_access"}:
        yield from _verdicts(ours["value"], truth["ttl_user_value"])
        yield from _verdicts(ours["last_access"], truth["ttl_last_access"])
    elif isinstance(truth, dict) and not truth.keys() & {"hex", "text", "class", "left", "right"}:
        for name, value in truth.items():
            yield from _verdicts(ours[name], value) if isinstance(ours, dict) and name in ours else ["different"]
    elif isinstance(truth, list):
        yield from _sequence(list(ours.values()) if isinstance(ours, dict) else ours, truth)
    else:
        yield "equal" if _same(ours, truth) else "different"


def _sequence(ours: Any, truth: list[Any]) -> Iterator[str]:
    if not isinstance(ours, list) or len(ours) != len(truth):
        yield "different"
        return
    for one, other in zip(ours, truth, strict=True):
        yield from _verdicts(one, other)


def _maps(ours: Any, truth: list[list[Any]]) -> Iterator[str]:
    pairs = list(ours or [])
    if len(pairs) != len(truth):
        yield "different"
        return
    for key, value in truth:
        found = next((pair for pair in pairs if compare(pair[0], key) == "equal"), None)
        if found is None:
            yield "different"
            return
        yield from _verdicts(found[1], value)


def _same(ours: Any, truth: Any) -> bool:
    match truth:
        case {"hex": text}:
            return bool(ours == bytes.fromhex(text))
        case {"text": text}:
            return bool(ours == text)
        case {"class": "Timestamp", "millis": millis, "nanos": nanos}:
            return bool(ours == instant_text(millis // 1000, nanos))
        case {"class": _, "millis": millis}:
            return bool(ours == instant_text(millis // 1000, millis % 1000 * 1_000_000))
        case {"left": value}:
            return ours["right"] is None and compare(ours["left"], value) == "equal"
        case {"right": value}:
            return ours["left"] is None and compare(ours["right"], value) == "equal"
        case str() if isinstance(ours, datetime | date | time):
            plain = ours.replace(tzinfo=None) if isinstance(ours, datetime) else ours  # Flink's text has no zone
            return type(ours).fromisoformat(truth) == plain
        case str() if isinstance(ours, Decimal):
            return Decimal(truth) == ours
        case float() if isinstance(ours, float) and math.isnan(truth):
            return math.isnan(ours)
        case _:
            return bool(ours == truth) and isinstance(ours, bool) == isinstance(truth, bool)
