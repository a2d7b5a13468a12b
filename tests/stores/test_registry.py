"""From a path to a store: what lies there is recognised, another format is named, and nothing is guessed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.cli.reading import StoreFormat
from abscli.stores.own import open_native
from abscli.stores.registry import SYSTEMS, open_store, recognise
from abscli.text.facts import LINES, facts
from formats.errors import NotFound, OtherFormat
from formats.native.store import NativeStore
from formats.storage import LocalStorage, MemoryStorage
from tests.support.schemas import checked
from tests.support.stores.json_system import put_into_the_table, write_store
from tests.support.stores.small import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    make_store(path)
    return path


def test_a_native_store_is_recognised_and_opened(store: Path) -> None:
    opened = open_store(str(store))
    assert (opened.format, opened.job) == ("abs", "reach")
    assert open_store(str(store), "abs").epochs() == opened.epochs()


def test_every_system_is_one_that_the_command_line_knows() -> None:
    assert [str(choice) for choice in StoreFormat] == [system.name for system in SYSTEMS]  # type: ignore[attr-defined]


def test_what_is_no_store_names_what_was_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match=r"looked for abs: abs-store\.json"):
        open_store(str(tmp_path))
    for command in ("inspect", "validate"):
        assert main([command, str(tmp_path)]) == 10
        assert "looked for" in capsys.readouterr().err


def test_what_is_no_store_names_one_above_or_below(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (store.parent, store / "epochs", store / "epochs" / "0000000001"):
        for command in ("inspect", "state", "validate", "plan-recovery"):
            if command == "inspect" and place == store.parent:
                continue  # it shows what lies there
            assert main([command, str(place)]) == 10
            assert f"hint: pass the path of a store, such as {store}\n" in capsys.readouterr().err


def test_a_store_that_lost_its_own_fact_file_is_still_checked(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copytree(store, tmp_path / "own"))
    (own / "abs-store.json").unlink()
    assert recognise(LocalStorage(own)).name == "abs"
    assert main(["validate", str(own), "-o", "json"]) == 3
    told = checked(capsys.readouterr().out)
    assert [(f["code"], f["path"]) for f in told["findings"]] == [("missing-file", "abs-store.json")]
    assert told["latest_restorable"] is None
    assert main(["inspect", str(own)]) == 10


def test_commands_that_need_a_native_store_say_so(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_into_the_table(monkeypatch)
    other = write_store(tmp_path / "other")
    with pytest.raises(OtherFormat, match="needs a store that abs wrote; Ledger wrote this store"):
        open_native(str(other), purpose="`abs restore`")
    assert open_native(str(store), "abs", purpose="`abs restore`").latest() == 4
    assert main(["gc", str(other)]) == 2
    assert "`abs gc` does not support stores of format ledger" in capsys.readouterr().err


def test_an_option_that_means_nothing_is_refused_with_those_to_which_it_does(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["inspect", "--uid", "a"], ["state", "--type", "a=long"], ["validate", "--search", "."]):
        name, option, value = command
        assert main([name, str(store), option, value]) == 2
        message = f"{option} means nothing to a store of format abs; only Flink's checkpoints have a use for it"
        assert message in capsys.readouterr().err


def test_a_named_format_is_not_looked_for() -> None:
    with pytest.raises(NotFound, match=r"not a store: abs-store\.json is missing"):
        NativeStore(MemoryStorage())
    assert recognise(MemoryStorage(), "abs").name == "abs"


def test_facts_of_any_shape_are_lines(store: Path) -> None:
    nested = {"a": None, "b": {"c": True, "d": []}, "e": [{"f": 12345}, {"f": 1}], "g": ["x", "y\x1b"], "h": {}}
    assert facts(nested, 80) == [
        "  a: ?", "  b:", "    c: yes", "    d: none", "  e:", "    [0]:", "      f: 12,345", "    [1]:", "      f: 1",
        "  g: x, y\\x1b", "  h: none",
    ]
    assert len(facts({str(i): i for i in range(1000)}, 80)) == LINES + 1
