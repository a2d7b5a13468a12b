"""Any layout becomes a canonical savepoint, row by row the same, or is refused by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.cli.main import main
from formats.errors import Damaged
from formats.flink.channels import has_channels
from formats.flink.facts import backends, kind
from formats.flink.metadata.handles import ChangelogHandle
from formats.flink.rewriting.changelog import changelog_pairs
from formats.flink.rewriting.encoding import encoded
from formats.flink.rewriting.pair import KeyedPairs, Pair
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.state import changes as of
from formats.flink.state.changelog_replay import Replay
from formats.flink.state.pairs import PairReader
from formats.flink.store import FlinkStore
from formats.flink.types.codecs import codec
from formats.flink.types.serializers import Snapshot
from tests.support.flink.cases import CANONICAL, CHANGELOG, HASHMAP, UNALIGNED, content
from tests.support.flink.matrix import CASES, Case, needs, unpack
from tests.support.schemas import checked

DATA = HASHMAP.parents[1]
STATES = DATA / "state"
"""Keys and namespaces that are both text, timers, time to live (tests/flink_java/StateJob.java)."""


@pytest.fixture(scope="module")
def matrix() -> Path:
    return unpack()


def converted(
    capsys: pytest.CaptureFixture[str], source: Path, to: Path, *options: object, code: int = 0
) -> dict[str, Any]:
    """What `abs rewrite --layout canonical` says; with code 0 the copy is there."""
    words = ["rewrite", source, "--layout", "canonical", "--to", to, *options, "-o", "json"]
    assert main([*map(str, words)]) == code
    out, err = capsys.readouterr()
    assert to.exists() is (code == 0)
    return checked(out) if code == 0 else checked(err.splitlines()[-1])


def assert_same(source: FlinkStore, copy: Path, done: dict[str, Any]) -> None:
    """The copy has all rows of all states, in the canonical layout."""
    after = FlinkStore(str(copy))
    before = content(source)
    assert content(after) == before
    (number,) = after.epoch_numbers()
    metadata = after.metadata(number)
    assert set(backends(metadata)) <= {"canonical"}
    sort = kind(metadata)
    assert (sort.kind, sort.layout) == (("checkpoint", None) if has_channels(metadata) else ("savepoint", "canonical"))
    ids = {name: id for id, name in source.names(source.metadata(source.resolve(None))).items()}
    for state in done["written"]:
        assert state["rows"] == len(before[ids[state["operator"]], state["state"]])


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", [case for case in CASES if case.version == "2.3"], ids=str)
def test_every_layout_becomes_a_canonical_savepoint(
    matrix: Path, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(case)
    search = matrix / case.version / case.name
    done = converted(capsys, matrix / case.folder, tmp_path / "copy", "--search", search)
    assert_same(FlinkStore(str(matrix / case.folder), search=[str(search)]), tmp_path / "copy", done)
    states = {state["state"]: state["kind"] for state in done["written"]}
    if case.kind == "checkpoint":
        assert (states["list"], states["map"], states["sum"]) == ("list", "map", "reducing")
        assert "timers" in states.values()


@pytest.mark.parametrize("name", ["heap-compressed", "rocksdb", "changelog", "changelog-materialized"])
def test_windows_of_text_keys_timers_and_time_to_live_are_kept(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "rocksdb":
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    (source,) = [path.parent for path in (STATES / name).glob("*/chk-*/_metadata")]
    search = STATES / name
    done = converted(capsys, source, tmp_path / "copy", "--search", search)
    assert len(done["written"]) > 3
    assert_same(FlinkStore(str(source), search=[str(search)]), tmp_path / "copy", done)


@pytest.mark.parametrize("name", ["sql", "sql-global"])
def test_state_of_sql_is_kept(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = [path.parent for path in (DATA / name).glob("*/chk-*/_metadata")]
    assert_same(FlinkStore(str(source)), tmp_path / "copy", converted(capsys, source, tmp_path / "copy"))


def test_records_in_flight_are_kept_and_the_copy_stays_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = converted(capsys, UNALIGNED, tmp_path / "copy")
    assert any("in flight are kept" in note for note in done["notes"])
    assert_same(FlinkStore(str(UNALIGNED)), tmp_path / "copy", done)


def test_a_canonical_savepoint_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = converted(capsys, CANONICAL, tmp_path / "copy")
    assert (done["written"], done["file"], done["layout"]) == ([], None, "canonical")
    assert (tmp_path / "copy" / "_metadata").read_bytes() == (CANONICAL / "_metadata").read_bytes()


def test_a_file_of_changes_and_the_layout_go_together(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(case for case in CASES if (case.version, case.name) == ("2.3", "changelog-files"))
    search = matrix / case.version / case.name
    source = FlinkStore(str(matrix / case.folder), search=[str(search)])
    before = content(source)
    (owner,) = {id for id, name in before if name == "list"}
    (tmp_path / "changes.yaml").write_text(
        f"version: 1\nremoved: [{{operator: {owner}, state: list}}, {{operator: {owner}, state: map, key: key-3}}]"
    )
    words = ["--search", search, "--changes", tmp_path / "changes.yaml"]
    done = converted(capsys, matrix / case.folder, tmp_path / "copy", *words)
    assert [change["rows"] for change in done["changes"]] == [20, 2]
    after = content(FlinkStore(str(tmp_path / "copy")))
    assert after == {
        key: [row for row in rows if key != (owner, "map") or '"key-3"' not in row]
        for key, rows in before.items()
        if key != (owner, "list")
    }


def test_what_cannot_be_converted_is_refused_with_every_operator_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = converted(capsys, HASHMAP, tmp_path / "copy", code=2)["message"]
    assert "totals: state 'opaque' has values of Orders$Opaque (KryoSerializer), whose ends only its class" in message
    assert "types: state 't-kryo' has values of Orders$Opaque" in message
    message = converted(capsys, CHANGELOG, tmp_path / "copy", code=2)["message"]
    assert "history: the type of its keys is not stored: it is state of the changelog backend" in message
    # without what stands in the way all else is converted
    (tmp_path / "changes.yaml").write_text("version: 1\nremoved: [totals, types]\n")
    converted(capsys, HASHMAP, tmp_path / "copy", "--changes", tmp_path / "changes.yaml")


def test_something_has_to_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", str(HASHMAP)]) == 2
    assert "--layout canonical" in capsys.readouterr().err


def test_a_dry_run_names_the_states_and_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", str(UNALIGNED), "--layout", "canonical"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "with a canonical layout" in out
    assert "counter, state count-and-sum: value, 16 rows" in out
    assert f"abs rewrite {UNALIGNED} --layout canonical --to NEWDIR" in out


# -- changes ----------------------------------------------------------------------------------------------

BASE = "org.apache.flink.api.common.typeutils.base."


def utf(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def simple(name: str) -> bytes:
    """The snapshot of a serializer without parts, as it stands in that of another one."""
    return utf(f"{BASE}{name}Serializer${name}SerializerSnapshot") + struct.pack(">i", 3)


def composed(name: str, *parts: bytes) -> bytes:
    return utf(name) + struct.pack(">5i", 1, 911108, 1, 1333245, 1) + struct.pack(">i", len(parts)) + b"".join(parts)


TEXT, LONG = simple("String"), simple("Long")
VOID = utf("org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot") + b"\0\0\0\3"
LISTS = composed(f"{BASE}ListSerializerSnapshot", TEXT)
MAPS = composed(f"{BASE}MapSerializerSnapshot", TEXT, LONG)
TIMERS = composed("org.apache.flink.streaming.api.operators.TimerSerializerSnapshot", TEXT, TEXT)


def described(name: str, type: str | None, value: bytes, namespace: bytes) -> bytes:
    """What Flink writes of a state; type: None: timers."""
    options = struct.pack(">ii", 0, 1) + utf("KEYED_STATE_TYPE") + utf(type) if type else struct.pack(">ii", 3, 0)
    roles = {"NAMESPACE_SERIALIZER": namespace, "VALUE_SERIALIZER": value} if type else {"VALUE_SERIALIZER": value}
    own = b"".join(utf(role) + struct.pack(">i", 2) + data for role, data in roles.items())
    return utf(name) + options + struct.pack(">i", len(roles)) + own


DESCRIBED = (
    described("value", "VALUE", LONG, VOID), described("list", "LIST", LISTS, TEXT),
    described("map", "MAP", MAPS, TEXT), described("timers", None, TIMERS, b""),
)  # fmt: skip
STATES_FIRST = [
    of.Change(-1, bytes([of.METADATA]) + struct.pack(">i", 7) + info + (b"\0\0" if number < 3 else b"")
              + struct.pack(">hb", number, 0), "changes")
    for number, info in enumerate(DESCRIBED)
]  # fmt: skip
HEAD = struct.pack(">i?i", 6, False, 2) + TEXT
GROUPS = range(3)
WORDS = st.sampled_from(["", "a", "b", "a,b", "\u00e9" * 3])


def text(value: str) -> bytes:
    return encoded(codec(Snapshot("string", "string", 3)), value)


def number(value: int) -> bytes:
    return struct.pack(">q", value)


@st.composite
def change(draw: st.DrawFn) -> of.Change:
    """A change of one of the states, as Flink writes them."""
    state, group, key, word = draw(st.integers(0, 3)), draw(st.sampled_from(GROUPS)), draw(WORDS), draw(WORDS)
    words, n = draw(st.lists(WORDS, max_size=3)), draw(st.integers(-3, 3))
    namespace = b"\0" if state == 0 else text(draw(st.sampled_from(["w", "x"])))
    body = text(key) + namespace
    items = struct.pack(">i", len(words)) + b"".join(map(text, words))
    entries = {word: i for i, word in enumerate(words)}
    pairs = struct.pack(">i", len(entries)) + b"".join(text(k) + b"\0" + number(v) for k, v in entries.items())
    timer = struct.pack(">Q", n + (1 << 63)) + body
    choices: list[tuple[int, bytes]] = {
        0: [(of.SET, body + number(n)), (of.SET_INTERNAL, body + number(n)), (of.CLEAR, body)],
        1: [(of.SET, body + items), (of.ADD, body + items), (of.ADD_ELEMENT, body + text(word)), (of.CLEAR, body),
            (of.MERGE, body + text("w") + struct.pack(">i", 1) + text("x"))],
        2: [(of.SET, body + pairs), (of.ADD, body + pairs), (of.PUT_ELEMENT, body + text(word) + number(n)),
            (of.ADD_ELEMENT, body + text(word) + number(n)), (of.REMOVE, body + text(word)), (of.CLEAR, body)],
        3: [(of.ADD_ELEMENT, struct.pack(">i", 2) + timer + timer), (of.REMOVE, timer)],
    }[state]  # fmt: skip
    operation, operand = draw(st.sampled_from(choices))
    return of.Change(group, bytes([operation]) + struct.pack(">h", state) + operand, "changes")


HANDLE = ChangelogHandle(14, GROUPS.start, len(GROUPS), 0, (), (), 0, 1, "id")


def applied(parts: list[KeyedPairs], changes: list[of.Change]) -> KeyedPairs:
    return changelog_pairs(HANDLE, parts, [*STATES_FIRST, *changes], 8, 5)


def rows_of(keyed: KeyedPairs) -> dict[tuple[str, int], list[Any]]:
    """By state and key group: keys, namespaces, entries, values."""
    rows: dict[tuple[str, int], list[Any]] = {}
    for pair in keyed.pairs():
        table = keyed.state.tables[pair.state]
        block = table.block(pair.group)
        assert PairReader(table, keyed.state).add(block, pair.key, pair.value) is None
        entry = block.user_keys[0] if block.user_keys else None
        rows.setdefault((table.name, pair.group), []).append(
            (block.keys[0], block.namespaces[0], entry, block.values[0])
        )
    return {place: sorted(own, key=repr) for place, own in rows.items()}


def replayed(changes: list[of.Change]) -> dict[tuple[str, int], list[Any]]:
    """The same of the reader that decodes what changes say."""
    rows: dict[tuple[str, int], list[Any]] = {}
    tables = dict(enumerate(applied([], []).state.tables))
    for block in Replay(tables, None).run(iter(()), changes, None):
        entries = block.user_keys or [None] * len(block.keys)
        own = list(zip(block.keys, block.namespaces, entries, block.values, strict=True))
        if own:
            rows[block.table.name, block.group] = sorted(own, key=repr)
    return rows


@given(st.lists(change(), max_size=30), st.lists(change(), max_size=30))
def test_changes_applied_to_bytes_are_changes_applied_to_values(
    before: list[of.Change], after: list[of.Change]
) -> None:
    first = applied([], before)
    assert first.prefix.head == HEAD
    assert [data for _, data in first.prefix.infos] == list(DESCRIBED)
    pairs: list[Pair] = list(first.pairs())
    assert [pair.group for pair in pairs] == sorted(pair.group for pair in pairs)
    part = KeyedPairs(first.prefix, first.state, GROUPS, lambda: iter(pairs))
    assert rows_of(applied([part], after)) == replayed(before + after)


def test_a_value_that_the_jobs_own_function_made_of_two_windows_is_refused() -> None:
    info = described("sums", "REDUCING", LONG, TEXT)
    body = text("key")
    changes = [
        of.Change(-1, bytes([of.METADATA]) + struct.pack(">i", 7) + info + b"\0\0" + struct.pack(">hb", 9, 0), "c"),
        *(of.Change(0, bytes([of.SET, 0, 9]) + body + text(window) + number(1), "c") for window in ("w", "x")),
        of.Change(0, bytes([of.MERGE, 0, 9]) + body + text("w") * 2 + struct.pack(">i", 1) + text("x"), "c"),
    ]
    keyed = applied([], changes)
    with pytest.raises(CannotRewrite, match="state 'sums': windows were merged by the job's own function"):
        list(keyed.pairs())


def test_a_change_of_bytes_that_are_none_is_damage() -> None:
    keyed = applied([], [of.Change(1, bytes([of.SET, 0, 1]) + text("key") + text("w") + b"\xff\xff", "c")])
    with pytest.raises(Damaged, match="key group 1, state 'list': a change that cannot be read"):
        list(keyed.pairs())
