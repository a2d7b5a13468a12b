"""From a path to a store: what lies there is recognised, another format is named, and nothing is guessed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.cli.options import StoreFormat
from abscli.stores import registry as checkers
from abscli.stores.registry import checker
from abscli.text.facts import LINES, facts
from formats import open as opening
from formats.errors import NotFound, OtherFormat
from formats.native.store import NativeStore
from formats.open import FORMATS, Format, open_native, open_store, recognise, resolve_epoch
from formats.storage import LocalStorage, MemoryStorage, Storage
from tests.support.schemas import checked
from tests.support.stores import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    make_store(path)
    return path


def test_a_native_store_is_recognised_and_opened(store: Path) -> None:
    opened = open_store(str(store))
    assert (opened.format, opened.job) == ("abs", "reach")
    assert open_store(str(store), "abs").epochs() == opened.epochs()


def test_every_format_is_one_that_the_command_line_knows_and_has_a_checker() -> None:
    for row in FORMATS:
        assert row.name in {str(choice) for choice in StoreFormat}
        assert callable(checker(row.name))
    assert set(checkers.CHECKERS) == {row.name for row in FORMATS}


def test_what_is_no_store_names_what_was_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match=r"looked for abs: abs-store\.json"):
        open_store(str(tmp_path))
    for command in ("inspect", "validate"):
        assert main([command, str(tmp_path)]) == 10
        assert "looked for" in capsys.readouterr().err


def test_what_is_no_store_names_one_above_or_below(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (store.parent, store / "epochs", store / "epochs" / "0000000001"):
        assert main(["inspect", str(place)]) == 10
        assert f"hint: there is one in {store}\n" in capsys.readouterr().err


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




class Foreign:
    """Only what the view promises."""

    format = "spark"

    def __init__(self, storage: Storage) -> None:
        self._store = NativeStore(storage)
        self.path, self.job = storage.root, None

    def __getattr__(self, name: str) -> Any:
        if name not in ("epochs", "detail", "topology", "states", "state", "log", "raw"):
            raise AttributeError(f"the view has no {name}")
        return getattr(self._store, name)


def is_foreign(storage: Storage) -> bool:
    return True


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Format("spark", "anything", __name__, "is_foreign", "Foreign")
    monkeypatch.setattr(opening, "FORMATS", (row, *FORMATS))
    monkeypatch.setitem(checkers.CHECKERS, "spark", ("abscli.stores.native.check", "check"))


@pytest.mark.usefixtures("foreign")
def test_commands_that_read_go_through_the_view_alone(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve_epoch(open_store(str(store)), None) == 4
    with pytest.raises(NotFound, match="1 to 5"):
        resolve_epoch(open_store(str(store)), 9)
    assert main(["inspect", str(store), "-o", "json"]) == 0
    assert checked(capsys.readouterr().out)["format"] == "spark"
    assert main(["inspect", f"{store}@latest", "-o", "json"]) == 0
    assert checked(capsys.readouterr().out)["raw"]["state_rows"] == 12
    assert main(["inspect", f"{store}@latest"]) == 0
    assert "As Spark says it\n  schema: abs.manifest\n" in capsys.readouterr().out
    assert main(["validate", str(store), "-o", "json"]) == 0
    assert checked(capsys.readouterr().out)["format"] == "spark"


@pytest.mark.usefixtures("foreign")
def test_commands_that_need_a_native_store_say_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OtherFormat, match="needs a store that abs wrote; this is one of Spark's"):
        open_native(str(store), purpose="`abs restore`")
    assert open_native(str(store), "abs", purpose="`abs restore`").latest() == 4
    assert main(["gc", str(store)]) == 2
    assert "abs gc` needs a store that abs wrote" in capsys.readouterr().err
    assert main(["plan-recovery", str(store), "--format", "abs"]) == 0


def test_a_named_format_is_not_looked_for() -> None:
    with pytest.raises(NotFound, match=r"no abs-store\.json"):
        NativeStore(MemoryStorage())
    assert recognise(MemoryStorage(), "abs").name == "abs"


def test_facts_of_any_shape_are_lines(store: Path) -> None:
    nested = {"a": None, "b": {"c": True, "d": []}, "e": [{"f": 12345}, {"f": 1}], "g": ["x", "y\x1b"], "h": {}}
    assert facts(nested, 80) == [
        "  a: ?", "  b:", "    c: yes", "    d: none", "  e:", "    [0]:", "      f: 12,345", "    [1]:", "      f: 1",
        "  g: x, y\\x1b", "  h: none",
    ]
    assert len(facts({str(i): i for i in range(1000)}, 80)) == LINES + 1
