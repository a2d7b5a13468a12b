"""The plan file: the same bytes for the same plan, and no damage goes unseen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import FormatError, UnsafePath, UnsupportedVersion
from formats.plan import (
    BadPlan,
    Cost,
    DedupRow,
    Input,
    Plan,
    PlanKind,
    ReplayLog,
    RestartRow,
    Rewind,
    Skipped,
    decode,
    encode,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "abs.plan.json").read_bytes())

PLAN = Plan(
    kind=PlanKind.RECOVER,
    store="/data/ckpt",
    job="wordcount",
    topology_sha256="a" * 64,
    epoch=7,
    base_epoch=7,
    failed=("counts/1",),
    restart=(RestartRow("counts", "0-3,7", "failed"),),
    dedup=(DedupRow("words", "counts", "0", "1-2"),),
    replay_logs=(ReplayLog("counts/0->words/1", 3), ReplayLog("x->y", None)),
    rewind=(Rewind("lines/0", "bücher.txt", None, 12),),
    untouched=4,
    parallelism={"counts": 8},
    cost=Cost(1024, 3, None),
    inputs=(Input("epochs/7/manifest.json", "b" * 64),),
    skipped=(Skipped(8, "2 of 8 tasks have not acked"),),
    created="2026-01-02T03:04:05.678Z",
)
BYTES = encode(PLAN)


def sealed(document: dict[str, Any]) -> bytes:
    """A file with a right digest and any members: what a hostile or foolish writer could make."""
    return reseal(json.dumps({k: v for k, v in document.items() if k != "sha256"}, indent=2).encode())


def reseal(text: bytes) -> bytes:
    body = text.removesuffix(b"\n}")
    return body + f',\n  "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def with_(**members: Any) -> bytes:
    return sealed({**json.loads(BYTES), **members})


def test_a_plan_is_read_back_as_it_was_written() -> None:
    assert decode(BYTES, "plan.json") == PLAN
    assert encode(decode(BYTES, "plan.json")) == BYTES


def test_the_file_is_indented_text_that_ends_with_its_digest_and_a_newline() -> None:
    lines = BYTES.decode().split("\n")
    assert lines[:3] == ["{", '  "schema": "abs.plan",', '  "version": "1.0",']
    assert lines[-2:] == ["}", ""]
    body, _, digest = BYTES.rpartition(b',\n  "sha256": ')
    assert json.loads(digest.removesuffix(b"}\n")) == hashlib.sha256(body).hexdigest()


def test_the_schema_names_exactly_the_members_of_the_file() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(BYTES)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert list(SCHEMA["properties"]) == list(document) == SCHEMA["required"]
    for key in ("restart", "dedup", "replay_logs", "rewind", "inputs", "skipped"):
        assert SCHEMA["properties"][key]["items"]["required"] == list(document[key][0])
    assert SCHEMA["properties"]["cost"]["required"] == list(document["cost"])


@given(st.integers(0, len(BYTES) - 1), st.integers(1, 255))
@settings(max_examples=500)
def test_a_flipped_byte_anywhere_is_found(index: int, change: int) -> None:
    data = bytearray(BYTES)
    data[index] ^= change
    with pytest.raises(FormatError):
        decode(bytes(data), "plan.json")


def test_every_single_bit_counts() -> None:
    for index in range(len(BYTES)):
        for bit in range(8):
            data = bytearray(BYTES)
            data[index] ^= 1 << bit
            with pytest.raises(FormatError):
                decode(bytes(data), "plan.json")


def test_a_truncated_plan_is_refused_wherever_it_was_cut() -> None:
    for end in range(len(BYTES)):
        with pytest.raises(BadPlan):
            decode(BYTES[:end], "plan.json")


@given(st.binary(max_size=60))
def test_garbage_is_not_a_plan(data: bytes) -> None:
    with pytest.raises(BadPlan):
        decode(data, "plan.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "plan.json: cut short: expecting value at line 1, column 1"),
        (BYTES[:200], "plan.json: cut short: "),
        (b"\xff\xfe", "plan.json: not UTF-8: byte 0 is 0xff"),
        (b"[1]", "plan.json: a plan is a JSON object, this is a list"),
        (b"[" * 100_000, "plan.json: nested too deeply to be a plan"),
        (b"{}", "plan.json: `schema` is missing, not 'abs.plan': this is not a plan"),
        (b'{"schema": "abs.inspect"}', "plan.json: `schema` is 'abs.inspect', not 'abs.plan'"),
        (b'{"schema": "abs.plan", "version": 1}', "plan.json: `version` is 1, not a version such as '1.0'"),
        (b'{"schema": "abs.plan", "version": "0.9"}', "plan.json: `version` is '0.9'"),
        (b'{"schema": "abs.plan", "version": "1.0"}', "plan.json: the plan does not end with its own `sha256`"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "plan.json: not JSON: 'c' stands twice in one object"),
        (b'{"a": NaN}', "plan.json: not JSON: NaN is not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "plan.json: not JSON: "),
        (BYTES.replace(b'"untouched": 4', b'"untouched": 5'), "plan.json: the plan was changed after it was made"),
        (BYTES + b"\n", "plan.json: the plan does not end with its own `sha256`"),
        (BYTES + b"x", "plan.json: not JSON: extra data at line"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(data: bytes, said: str) -> None:
    with pytest.raises(BadPlan) as error:
        decode(data, "plan.json")
    assert str(error.value).startswith(said)


def test_a_changed_plan_is_told_with_both_digests() -> None:
    data = BYTES.replace(b'"untouched": 4', b'"untouched": 5')
    said = json.loads(BYTES)["sha256"]
    is_ = hashlib.sha256(data.rpartition(b",\n")[0]).hexdigest()
    with pytest.raises(BadPlan, match=f"sha256 {said}, its bytes have {is_}"):
        decode(data, "plan.json")


@pytest.mark.parametrize("version", ["2.0", "12.3"])
def test_a_newer_major_version_is_refused_by_name_whatever_else_it_says(version: str) -> None:
    with pytest.raises(UnsupportedVersion, match=f"has version {version}, this program reads up to 1"):
        decode(f'{{"schema": "abs.plan", "version": "{version}"}}'.encode(), "plan.json")


def test_a_newer_minor_version_may_say_more() -> None:
    assert msgspec.structs.replace(decode(with_(version="1.7", extra=[1]), "p"), version="1.0") == PLAN


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "a//b", "a\\b", "..\\x", "a/", "a\0b"]
)
def test_an_input_path_never_leads_out_of_the_store(path: str) -> None:
    with pytest.raises(UnsafePath):
        Input(path, "b" * 64)
    with pytest.raises(UnsafePath, match=r"^plan\.json: the input "):
        decode(with_(inputs=[{"path": path, "sha256": "b" * 64}]), "plan.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(with_(inputs=[{"path": path, "sha256": "b" * 64}])))


@pytest.mark.parametrize("path", ["a", "a/b.parquet", "..a/b..", ".hidden", "a b/ü"])
def test_a_plain_path_is_an_input(path: str) -> None:
    data = with_(inputs=[{"path": path, "sha256": "b" * 64}])
    assert decode(data, "plan.json").inputs[0].path == path
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


@pytest.mark.parametrize(
    "members",
    [
        {"kind": "undo"},
        {"epoch": -1},
        {"epoch": None},
        {"store": None},
        {"epoch": "7"},
        {"untouched": None},
        {"untouched": 1.5},
        {"failed": ["counts"]},
        {"failed": ["counts/01"]},
        {"restart": [{"operator": "counts", "subtasks": "", "why": "failed"}]},
        {"restart": [{"operator": "counts", "subtasks": "0-3,", "why": "failed"}]},
        {"restart": [{"operator": "counts", "subtasks": "0"}]},
        {"restart": None},
        {"topology_sha256": "A" * 64},
        {"inputs": [{"path": "a", "sha256": "b" * 63}]},
        {"parallelism": {"counts": 0}},
        {"cost": {"state_bytes": 1, "log_records": 1}},
        {"created": "2026-01-02T03:04:05+01:00"},
        {"created": "yesterday"},
    ],
)
def test_a_member_of_the_wrong_shape_is_refused_here_and_by_the_schema(members: dict[str, Any]) -> None:
    data = with_(**members)
    with pytest.raises(BadPlan, match=r"plan\.json: not a plan: "):
        decode(data, "plan.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


def test_half_a_character_is_refused() -> None:
    data = reseal(BYTES.rpartition(b",\n")[0].replace(b"wordcount", b"\\ud800") + b"\n}")
    with pytest.raises(BadPlan):
        decode(data, "plan.json")


def test_a_partial_plan_needs_no_store() -> None:
    graph_only = msgspec.structs.replace(PLAN, kind=PlanKind.PARTIAL, store=None, epoch=None, base_epoch=None)
    assert decode(encode(graph_only), "p") == graph_only
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(encode(graph_only)))
