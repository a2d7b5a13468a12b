"""Sources that get names in a copy, so that the real query goes on with one more, or one less."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from formats.spark.logs.offsets import parse_offsets
from tests.support.commands import run_command
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.data import copy_of, copy_of_running
from tests.support.spark.unions import add_file, go_on, words_of
from tests.support.spark.words import CONFS

FILES = 4


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS):
        session.conf.unset(key)


@pytest.fixture(scope="module", params=["hdfs", "ids"])
def made(request: pytest.FixtureRequest, session: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the `checkpoint` of a query without names that has read the folders `orders` and `refunds`."""
    home: Path = tmp_path_factory.mktemp(request.param)
    for number in range(FILES):
        for folder in ("orders", "refunds", "more"):
            add_file(home / folder, number)
    cases.set_conf(session, CONFS[request.param])
    both = [home / "orders", home / "refunds"]
    assert go_on(session, both, home / "checkpoint", named=False) == words_of(*both)
    return home


@pytest.fixture
def copy(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Plans and restores with names; the copy."""

    def restored(checkpoint: Path, *names: str, at: str = "", to: str = "copy") -> Path:
        options = [text for name in names for text in ("--name-source", name)]
        plan = tmp_path / f"{to}.json"
        assert main(["plan-recovery", f"{checkpoint}{at}", "--out", str(plan), "-q", *options]) == 0
        assert main(["restore", str(plan), "--to", str(tmp_path / to), "-q"]) == 0
        assert main(["validate", str(tmp_path / to), "-q"]) == 0
        capsys.readouterr()
        return tmp_path / to

    return restored


def changed(session: Any, made: Path, checkpoint: Path, *folders: str) -> dict[str, int]:
    """What the query shows when it goes on with these sources, and a new file in each. The input is left as it was."""
    for folder in folders:
        add_file(made / folder, FILES)
    try:
        return go_on(session, [made / folder for folder in folders], checkpoint)
    finally:
        for folder in folders:
            (made / folder / f"part {FILES:03d}.txt").unlink()


def test_spark_itself_refuses_names_where_there_were_none(session: Any, made: Path, tmp_path: Path) -> None:
    """Without which none of this would be needed."""
    own = copy_of_running(made / "checkpoint", tmp_path / "own")
    with pytest.raises(Exception, match="CANNOT_ENABLE_ON_EXISTING_CHECKPOINT"):
        go_on(session, [made / "orders", made / "refunds"], own)


def test_the_query_goes_on_with_one_source_more(session: Any, made: Path, copy: Any) -> None:
    own = copy(made / "checkpoint", "0=orders", "1=refunds")
    came = changed(session, made, own, "more", "refunds", "orders")
    expected = words_of(made / "orders", made / "refunds", made / "more")
    expected.update({"all": 3, **{f"of-{name}": 1 for name in ("orders", "refunds", "more")}})
    for name, word in (("orders", f"orders-{FILES}"), ("refunds", f"refunds-{FILES}"), ("more", f"more-{FILES}")):
        expected[word] = 1
        assert came[f"of-{name}"] == expected[f"of-{name}"]
    assert came["all"] == expected["all"] == 3 * (FILES + 1)
    assert set(came) == {"all", "of-orders", "of-refunds", "of-more", f"orders-{FILES}", f"refunds-{FILES}",
                         *(f"more-{number}" for number in range(FILES + 1))}  # fmt: skip
    assert main(["validate", str(own), "-q"]) == 0


def test_the_query_goes_on_with_one_source_less(session: Any, made: Path, copy: Any) -> None:
    own = copy(made / "checkpoint", "0=orders", "1=refunds")
    came = changed(session, made, own, "refunds")
    assert came == {"all": 2 * FILES + 1, "of-refunds": FILES + 1, f"refunds-{FILES}": 1}
    assert main(["validate", str(own), "-q"]) == 0


def test_a_batch_before_a_source_was_added_is_gone_back_to_without_it(session: Any, made: Path, copy: Any) -> None:
    own = copy(made / "checkpoint", "0=orders", "1=refunds")
    changed(session, made, own, "orders", "refunds", "more")
    back = copy(own, at=f"@{FILES - 1}", to="back")
    assert sorted(path.name for path in (back / "sources").iterdir()) == ["orders", "refunds"]
    came = changed(session, made, back, "orders", "refunds", "more")
    assert came["all"] == 3 * (FILES + 1)
    assert Counter(came)["of-more"] == FILES + 1


def test_the_copy_has_each_source_under_its_name(made: Path, copy: Any) -> None:
    own = copy(made / "checkpoint", "0=orders", "1=refunds")
    for path in own.glob("offsets/[0-9]*"):
        was = parse_offsets((made / "checkpoint/offsets" / path.name).read_bytes(), path.name)
        now = parse_offsets(path.read_bytes(), path.name)
        assert (now.version, list(now.sources.items())) == (
            2, [("orders", was.sources["0"]), ("refunds", was.sources["1"])],
        )  # fmt: skip
        assert (now.watermark, now.timestamp) == (was.watermark, was.timestamp)
    for number, name in (("0", "orders"), ("1", "refunds")):
        for path in (made / "checkpoint/sources" / number).iterdir():
            assert (own / "sources" / name / path.name).read_bytes() == path.read_bytes()
    assert not list(own.glob("offsets/.*.crc")), "they would be of other bytes"


def test_a_source_that_has_a_name_gets_another(session: Any, made: Path, copy: Any, tmp_path: Path) -> None:
    first = copy(made / "checkpoint", "0=sales", "1=refunds", to="first")
    own = copy(first, "sales=orders", to="second")
    assert changed(session, made, own, "orders", "refunds")["of-orders"] == FILES + 1


@pytest.mark.parametrize(
    ("names", "code", "message"),
    [
        (["0=orders"], 4, "source 1 gets no name"),
        (["0=orders", "1=orders"], 4, "two sources would have the name orders"),
        (["0=orders", "1=refunds", "2=more"], 4, "has no source 2: it has 0, 1"),
        (["0=or-ders", "1=refunds"], 2, "letters, digits and _"),
        (["0=orders", "0=refunds"], 2, "source 0 is named twice"),
        (["orders"], 2, "is not SOURCE=NAME"),
    ],
)
def test_names_that_cannot_be_are_refused_with_what_to_do(
    names: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    for path in root.glob("offsets/*"):
        path.write_text(path.read_text() + f'\n{{"orders":{{"0":{path.name}}}}}')
    options = [text for name in names for text in ("--name-source", name)]
    got, out, err = run_command("plan-recovery", capsys, root, *options, "-o", "json")
    assert (got, message in checked(out or err)["message"]) == (code, True)


def test_what_the_query_has_to_do_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    code, out, _ = run_command("plan-recovery", capsys, root, "--name-source", "0=lines")
    text = " ".join(out.split())
    assert code == 0
    assert "source 0 is called lines" in text
    assert "enableSourceEvolution to true (Spark 4.2 on)" in text
    assert "Put back" not in text
    code, out, _ = run_command("plan-recovery", capsys, root, "--name-source", "0=lines", "-o", "json")
    body = checked(out)["body"]
    assert body["renamed_sources"] == [{"source": "0", "name": "lines"}]
    assert {file["path"]: file["source"] for file in body["restored_files"]}["sources/lines/0"] == "sources/0/0"
    head = json.loads(next(f["text"] for f in body["write"] if f["path"] == "offsets/6").split("\n")[1])
    assert head["sourceMetadataInfo"] == {}
