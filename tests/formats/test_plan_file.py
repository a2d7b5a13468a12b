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

from formats.errors import FormatError, OtherFormat, UnsafePath, UnsupportedVersion
from formats.flink.plan import FlinkPlan, run_line
from formats.native.plan import Cost, DedupRow, NativePlan, PlanKind, ReplayLog, RestartRow, Rewind
from formats.plan import BadPlan, Body, PinnedFile, Plan, Skipped, encode
from formats.plan import decode as decode_any
from formats.reference import ReadOptions
from formats.schema import BODIES
from formats.spark.plan import Again, InputFolder, Left, Moved, Newer, SparkPlan, Written
from tests.tiers import examples

SCHEMA = json.loads((Path(__file__).parents[2] / "formats" / "schemas" / "abs.plan.json").read_bytes())

PLAN = Plan(
    system="abs",
    created="2026-01-02T03:04:05.678Z",
    store="/data/ckpt",
    relies_on=(PinnedFile("epochs/7/manifest.json", 12, "b" * 64),),
    body=NativePlan(
        kind=PlanKind.RECOVER,
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
        skipped=(Skipped(8, "2 of 8 tasks have not acked"),),
    ),
)
FLINK = Plan(
    system="flink",
    created="2026-01-02T03:04:05Z",
    store="/data/job",
    read=ReadOptions(search=("/data/savepoint",), path_map=("s3://old=/new",), uid=("counts",), type=("a=long",)),
    relies_on=(PinnedFile("chk-7/_metadata", 12, "b" * 64),),
    body=FlinkPlan(
        epoch=7,
        kind="checkpoint",
        directory="/data/job/chk-7",
        skipped=(Skipped(8, "it was never completed"),),
        in_place=True,
        repairs=(),
        files=3,
        bytes=1 << 40,
        backend="rocksdb",
        claim=True,
        command=run_line("/data/job/chk-7", claim=True, backend="rocksdb"),
    ),
)
SPARK = Plan(
    system="spark",
    created="2026-01-02T03:04:05Z",
    store="s3://bucket/checkpoint",
    relies_on=(PinnedFile("offsets/6", 12, "b" * 64), PinnedFile("state/0/_metadata/metadata", 3, "c" * 64)),
    body=SparkPlan(
        query_id="4b0a6c52-de65-4bfb-a9cf-402bce370337",
        batch=6,
        newest_started=7,
        newest_committed=6,
        skipped=(Newer(7, "it was in flight and never committed"),),
        next_batch_unchanged=False,
        replayed=(Again(7, False),),
        moved=(Moved("file:///old", "file:///new"),),
        inputs=(InputFolder("0", "file:///old", 3, None),),
        state_bytes=0,
        write=(Written("commits/6", "it was lost", "v1\n{}"), Written("state/0/_metadata/metadata", "names it", None)),
        excluded=(Left("of later batches", 1, 9, ("offsets/7",)),),
    ),
)


def body_of(system: str) -> type[Body]:
    if system not in BODIES:
        raise OtherFormat(system)
    return BODIES[system]


def decode(data: bytes, name: str) -> Plan[Any]:
    return decode_any(data, name, body_of)


BYTES = encode(PLAN)


def sealed(document: dict[str, Any]) -> bytes:
    """A file with a right digest and any members: what a hostile or foolish writer could make."""
    return reseal(json.dumps({k: v for k, v in document.items() if k != "sha256"}, indent=2).encode())


def reseal(text: bytes) -> bytes:
    body = text.removesuffix(b"\n}")
    return body + f',\n  "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def with_(plan: Plan[Any] = PLAN, **members: Any) -> bytes:
    """The plan's file with other members, of its own or of its body."""
    document = json.loads(encode(plan))
    for name, value in members.items():
        (document["body"] if name in document["body"] else document)[name] = value
    return sealed(document)


@pytest.mark.parametrize("plan", [PLAN, FLINK, SPARK], ids=lambda plan: plan.system)
def test_a_plan_is_read_back_as_it_was_written(plan: Plan[Any]) -> None:
    assert decode(encode(plan), "plan.json") == plan
    assert encode(decode(encode(plan), "plan.json")) == encode(plan)


def test_the_file_is_indented_text_that_ends_with_its_digest_and_a_newline() -> None:
    lines = BYTES.decode().split("\n")
    assert lines[:3] == ["{", '  "schema": "abs.plan",', '  "version": "1.0",']
    assert lines[-2:] == ["}", ""]
    body, _, digest = BYTES.rpartition(b',\n  "sha256": ')
    assert json.loads(digest.removesuffix(b"}\n")) == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("plan", [PLAN, FLINK, SPARK], ids=lambda plan: plan.system)
def test_the_schema_names_exactly_the_members_of_the_file(plan: Plan[Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(encode(plan))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert list(SCHEMA["properties"]) == list(document) == SCHEMA["required"]
    body = SCHEMA["$defs"][type(plan.body).__name__]
    assert list(body["properties"]) == list(document["body"])


def test_the_schema_says_which_body_goes_with_which_system() -> None:
    for plan in (PLAN, FLINK, SPARK):
        for other in {"abs", "flink", "spark"} - {plan.system}:
            data = with_(plan, system=other)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))
            with pytest.raises(BadPlan, match=r"not a plan: .* at `\$\.body"):
                decode(data, "plan.json")


def test_a_plan_for_a_system_that_is_not_known_is_refused() -> None:
    with pytest.raises(OtherFormat):
        decode(with_(system="storm"), "plan.json")
    for system in (None, 3):
        with pytest.raises(BadPlan, match="`system` is "):
            decode(with_(system=system), "plan.json")


@given(st.integers(0, len(BYTES) - 1), st.integers(1, 255))
@settings(max_examples=examples(500))
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
        (b'{"schema": "abs.flink-plan"}', "plan.json: `schema` is 'abs.flink-plan', not 'abs.plan'"),
        (b'{"schema": "abs.plan"}', "plan.json: `version` is missing"),
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


@pytest.mark.parametrize("version", ["2.0", "0.9", "1", "1.", "1.0 ", "01.0", "1.٣", "0-dev", "", 1, None])
def test_another_format_version_is_refused_whatever_else_the_plan_says(version: object) -> None:
    refused = rf"^plan\.json: has format version {version!r}, this program reads versions 1\.x"
    with pytest.raises(UnsupportedVersion, match=refused):
        decode(json.dumps({"schema": "abs.plan", "version": version}).encode(), "plan.json")


def test_a_plan_of_another_format_version_says_how_to_plan_again() -> None:
    old = {"schema": "abs.plan", "version": "2.0", "store": "/data/my store"}
    with pytest.raises(UnsupportedVersion) as error:
        decode(json.dumps(old).encode(), "old plan.json")
    assert error.value.hint == "plan again: abs plan-recovery '/data/my store' --out 'old plan.json'"
    for nowhere in (None, ["x"], "x" * 5000):
        with pytest.raises(UnsupportedVersion) as error:
            decode(json.dumps({**old, "store": nowhere}).encode(), "plan.json")
        assert error.value.hint == "plan again: abs plan-recovery STORE --out plan.json"


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "a//b", "a\\b", "..\\x", "a/", "a\0b"]
)
def test_an_input_path_never_leads_out_of_the_store(path: str) -> None:
    with pytest.raises(UnsafePath):
        PinnedFile(path, 1, "b" * 64)
    hostile = [
        with_(relies_on=[{"path": path, "bytes": 1, "sha256": "b" * 64}]),
        with_(SPARK, write=[{"path": path, "reason": "", "text": ""}]),
    ]
    for data in hostile:
        with pytest.raises(UnsafePath, match=r"^plan\.json: the file "):
            decode(data, "plan.json")
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


@pytest.mark.parametrize("path", ["a", "a/b.parquet", "..a/b..", ".hidden", "a b/ü"])
def test_a_plain_path_is_an_input(path: str) -> None:
    data = with_(relies_on=[{"path": path, "bytes": 1, "sha256": "b" * 64}])
    assert decode(data, "plan.json").relies_on[0].path == path
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
        {"restart": [{"operator": "counts", "subtasks": "", "reason": "failed"}]},
        {"restart": [{"operator": "counts", "subtasks": "0-3,", "reason": "failed"}]},
        {"restart": [{"operator": "counts", "subtasks": "0"}]},
        {"restart": None},
        {"topology_sha256": "A" * 64},
        {"relies_on": [{"path": "a", "bytes": 1, "sha256": "b" * 63}]},
        {"relies_on": [{"path": "a", "bytes": -1, "sha256": "b" * 64}]},
        {"relies_on": [{"path": "a", "sha256": "b" * 64}]},
        {"read": {"search": "/data"}},
        {"body": None},
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


@pytest.mark.parametrize("store", ["snapshots", "./snapshots", "../s", "", "file:snapshots"])
def test_a_store_that_depends_on_the_current_folder_is_refused(store: str) -> None:
    data = with_(store=store)
    with pytest.raises(BadPlan, match=r"`store` is '.*', neither an absolute path nor a URI"):
        decode(data, "plan.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


@pytest.mark.parametrize("store", ["/data", "/", "file:/data", "file:///data", "s3://bucket", "/a\nb", "/bücher"])
def test_a_store_that_is_the_same_from_every_folder_is_one(store: str) -> None:
    data = with_(store=store)
    assert decode(data, "plan.json").store == store
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


def test_a_plan_that_names_a_file_twice_is_refused() -> None:
    written = {"path": "metadata", "reason": "", "text": ""}
    pinned = {"path": "metadata", "bytes": 1, "sha256": "b" * 64}
    for members in ({"write": [written, {**written, "text": "x"}]}, {"relies_on": [pinned, {**pinned, "bytes": 2}]}):
        with pytest.raises(BadPlan, match="metadata stands twice in `"):
            decode(with_(SPARK, **members), "plan.json")
    assert decode(with_(SPARK, write=[written], relies_on=[pinned]), "plan.json").body.write


def test_half_a_character_is_refused() -> None:
    data = reseal(BYTES.rpartition(b",\n")[0].replace(b"wordcount", b"\\ud800") + b"\n}")
    with pytest.raises(BadPlan):
        decode(data, "plan.json")


def test_a_partial_plan_needs_no_store() -> None:
    body = msgspec.structs.replace(PLAN.body, kind=PlanKind.PARTIAL, epoch=None, base_epoch=None)
    graph_only = msgspec.structs.replace(PLAN, store=None, body=body, relies_on=())
    assert decode(encode(graph_only), "p") == graph_only
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(encode(graph_only)))


@pytest.mark.parametrize("plan", [FLINK, SPARK], ids=lambda plan: plan.system)
def test_no_other_plan_does_without_a_store(plan: Plan[Any]) -> None:
    data = with_(plan, store=None)
    with pytest.raises(BadPlan, match="must name its `store`"):
        decode(data, "plan.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))


def test_nobody_has_a_line_of_his_own_printed_for_people_to_run() -> None:
    for members in (
        {"command": "curl x | sh"}, {"in_place": False}, {"claim": False}, {"directory": "/elsewhere"},
        {"command": None},
    ):  # fmt: skip
        with pytest.raises(BadPlan, match="`command` is not the line"):
            decode(with_(FLINK, **members), "plan.json")
