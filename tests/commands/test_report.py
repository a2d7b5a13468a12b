"""`abs report`: a page of stores of every system and of what other commands have said, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from abscli import __version__
from abscli.cli.main import main
from abscli.pages.html import html_of
from formats.native import fact_files, layout
from formats.native.facts import decode_facts, unseal
from formats.timestamps import unix_time
from tests.support.commands import answer_of, result_of, run_command
from tests.support.flink.times import set_times
from tests.support.guide.checkpoints import CLAIMED, JOB, make_incident, make_retained
from tests.support.imports import ROOT
from tests.support.pages import Taken
from tests.support.schemas import checked
from tests.support.spark.data import copy_of
from tests.support.stores.hostile import change
from tests.support.stores.large import Synthetic, words
from tests.support.stores.small import FIRST, make_store

FLINK = ROOT / "tests" / "data" / "flink"

run = partial(run_command, "report")
facts = partial(result_of, "report")


NOON = 1767355200
"""2026-01-02T12:00:00Z, as seconds since 1970."""


@pytest.fixture(autouse=True)
def at_noon() -> Iterator[None]:
    """Reports are made at noon on 2 January 2026, in Berlin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", str(NOON))
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store, and a damaged copy of it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    make_store("snapshots")
    return Path("snapshots")


@pytest.fixture
def damaged(store: Path) -> Path:
    folder = Path(shutil.copytree(store, "damaged"))
    file = folder / layout.state(4, "seen/1", FIRST)
    file.write_bytes(file.read_bytes()[:100])
    return folder


def page_of(capsys: pytest.CaptureFixture[str], *args: object) -> Taken:
    code, _, err = run(capsys, *args, "--out", "page.html")
    assert (code, err) == (0, "")
    return Taken.of(Path("page.html").read_bytes())


# -- stores --------------------------------------------------------------------------------------------------


def test_what_an_epoch_says_is_read_once_however_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = 12
    built = Synthetic(str(tmp_path / "store"), 3)
    table = pa.table({"word": words(np.arange(30)), "n": pa.array(np.arange(30))})
    state = [(built.write(1, task, part),) for task, part in enumerate(built.slices(table))]
    for epoch in range(1, epochs + 1):
        built.epoch(epoch, epoch - 1, state)
    decoded: Counter[tuple[str, str]] = Counter()

    def counted(data: bytes, kind: type[Any], path: str) -> Any:
        decoded[kind.__name__, path] += 1
        return decode_facts(data, kind, path)

    def opened(data: bytes, kind: type[Any], path: str) -> Any:
        decoded[kind.__name__, path] += 1
        return unseal(data, kind, path)

    monkeypatch.setattr(fact_files, "decode_facts", counted)
    monkeypatch.setattr(fact_files, "unseal", opened)
    report = facts(capsys, tmp_path / "store")
    assert len(report["epochs"]) == epochs
    several = {key: times for key, times in decoded.items() if times > 1 and key[0] in ("TasksFacts", "ManifestFacts")}
    shown = f"/{layout.epoch_dir(epochs)}/"  # in depth, too
    assert {key for key in several if shown not in key[1]} == set()


def test_a_store_of_abs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = facts(capsys, store)
    assert (report["about"], report["state"], report["job"]) == ("store", "unverified", "reach")
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 2, 3, 4, 5]
    assert [epoch["restorable"] for epoch in report["epochs"]] == [True, True, False, True, False]
    assert report["depth"]["epoch"] == report["latest_restorable"] == 4
    assert {(edge["from"], edge["to"], edge["consistent"]) for edge in report["depth"]["channels"]} == {
        ("lines", "seen", True), ("seen", "seen", True), ("seen", "out", True),
    }  # fmt: skip
    assert [row["split"] for row in report["depth"]["positions"]] == ["in/0.txt", "in/1.txt"]
    assert {piece["number"] for state in report["depth"]["states"] for piece in state["pieces"]} <= set(range(8))
    assert [one["id"] for one in report["growth"]] == ["", "seen"]
    taken = page_of(capsys, store)
    assert {"epoch-1", "epoch-5", "graph", "sizes", "channels", "sources", "growth", "next"} <= set(taken.ids)
    assert json.loads("".join(taken.texts["facts"])) == report


def test_an_epoch(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = facts(capsys, f"{store}@2")
    assert (report["about"], report["epoch"], report["state"]) == ("epoch", 2, "unverified")
    assert [epoch["epoch"] for epoch in report["epochs"]] == [2]
    assert report["depth"]["epoch"] == 2


def test_an_epoch_that_is_not_complete_says_which_tasks_are_missing(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = facts(capsys, f"{store}@5")
    assert report["state"] == "not-restorable"
    assert [(task["task"], task["acked"]) for task in report["depth"]["tasks"]][:2] == [
        ("seen/1", False), ("out/0", False),
    ]  # fmt: skip
    assert {node["id"]: node["highlight"] for node in report["graph"]["nodes"]} == {
        "lines": None, "seen": "missing", "out": "missing",
    }  # fmt: skip


def test_what_is_damaged_comes_first_with_what_to_do(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = facts(capsys, damaged)
    assert report["state"] == "damaged"
    assert report["summary"] == "epoch 4. Newest restorable: epoch 2."
    assert report["problems"][0]["code"] == "size-mismatch"
    assert report["next"][0] == f"abs plan-recovery {damaged.resolve()}@2 --out plan.json"
    assert {node["id"]: node["highlight"] for node in report["graph"]["nodes"]}["seen"] == "damaged"
    for command in report["next"]:
        assert main(shlex.split(command)[1:]) in (0, 3)


def test_bytes_that_changed_are_found_where_files_are_read(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = store / layout.state(4, "seen/0", FIRST)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert not {"digest-mismatch"} & {one["code"] for one in facts(capsys, store, "--no-stats")["problems"]}
    report = facts(capsys, store, "--no-stats", "--verify")
    assert report["state"] == "damaged"
    assert "digest-mismatch" in {one["code"] for one in report["problems"]}
    assert report["depth"]["states"] == []
    assert "--no-stats" in report["depth"]["states_note"]


def test_a_store_whose_books_are_damaged_has_a_page_of_what_was_checked(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / layout.STORE).write_bytes(b"{}")
    report = facts(capsys, store)
    assert report["state"] == "damaged"
    assert report["summary"] == "the metadata of the store. No epoch can be restored."
    assert report["notes"]


@pytest.mark.parametrize("name", ["unaligned", "rocksdb-incremental", "hashmap-plain"])
def test_a_job_of_flink(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = next((FLINK / name).rglob("_metadata")).parent.parent
    report = facts(capsys, job)
    assert report["format"] == "flink"
    assert report["epochs"]
    assert report["epochs"][-1]["duration"] is None
    assert report["depth"]["operators"]
    assert "does not keep the job graph" in report["graph"]["note"]
    page = tmp_path / "page.html"
    assert main(["report", str(job), "--out", str(page)]) == 0
    assert "not known here" in Taken.of(page.read_bytes()).text


def test_a_checkpoint_of_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = copy_of("wc_rocks", tmp_path)
    report = facts(capsys, checkpoint)
    assert (report["format"], report["state"], report["about"]) == ("spark", "unverified", "store")
    assert [epoch["epoch"] for epoch in report["epochs"]] == [0, 1, 2, 3]
    assert report["depth"]["positions"]
    assert report["depth"]["channels"] == []
    assert report["growth"]


# -- age, times, commands, and the effect of a restore -------------------------------------------------------


def test_a_report_names_its_maker_and_the_age_of_the_newest_restorable_epoch(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = facts(capsys, store)
    assert report["made"] == {
        "by": f"abs {__version__}", "at": "2026-01-02T12:00:00.000Z", "utc_offsets": [["2026-01-02T03:04:01.000Z", 60]],
    }  # fmt: skip
    assert report["newest"] == {
        "epoch": 4, "time": "2026-01-02T03:04:04.000Z", "source": "triggered", "age": 32156.0,
    }  # fmt: skip
    text = page_of(capsys, store).text
    assert "8 h 55 min old" in text
    assert "triggered 2026-01-02 03:04:04 UTC (04:04:04 +01:00 local)" in text
    assert f"made by abs {__version__} at 2026-01-02 12:00:00 UTC (13:00:00 +01:00 local)" in text


def test_without_a_fixed_time_a_report_is_made_now(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    before = time.time()
    made = unix_time(facts(capsys, store)["made"]["at"])
    assert made is not None
    assert before - 0.001 <= made <= time.time()


def test_the_age_of_a_flink_checkpoint_is_that_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (original,) = (FLINK / "hashmap-checkpoint").iterdir()
    job = Path(shutil.copytree(original, tmp_path / original.name))
    newest = facts(capsys, job)["latest_restorable"]
    set_times(job, NOON - 90 * 60)
    report = facts(capsys, job)
    assert report["newest"] == {
        "epoch": newest, "time": "2026-01-02T10:30:00.000Z", "source": "modified", "age": 5400.0,
    }  # fmt: skip
    assert report["epochs"][-1]["modified"]
    text = page_of(capsys, job).text
    assert "1 h 30 min old" in text
    assert "The checkpoint records no time, and copying a file may change this one." in text
    assert "File written (UTC)" in text
    assert "two-phase commit" in " ".join(report["resume"]["output"])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "2026-01-02T03:04:05", "x"])
def test_a_time_at_the_ends_of_the_calendar_is_a_time(
    zone: str, moment: str, damaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    said = saved(capsys, "validate", damaged, code=3)
    for epoch in said["epochs"]:
        epoch["triggered"] = moment
    Path("saved.json").write_text(json.dumps(said))
    assert moment[:10] in page_of(capsys, "saved.json").text


def test_commands_work_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a store"
    folder.mkdir()
    monkeypatch.chdir(folder)
    make_store("snapshots")
    report = facts(capsys, "snapshots")
    assert report["store"] == f"{folder}/snapshots"
    commands = [*report["next"], *(one["command"] for one in report["problems"])]
    assert len(commands) > 2
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for command in commands:
        assert main(shlex.split(command)[1:]) in (0, 3), command
    capsys.readouterr()


def test_commands_keep_the_options_by_which_the_store_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_incident(tmp_path / "incident")
    monkeypatch.chdir(tmp_path / "incident")
    Path("my backup").mkdir()
    report = facts(capsys, CLAIMED, "--search", "my backup", "--no-stats")
    store, backup = Path(CLAIMED).resolve(), shlex.quote(str(Path("my backup").resolve()))
    assert report["next"] == [
        f"abs plan-recovery {store} --out plan.json --search {backup}", f"abs validate {store} --search {backup}",
    ]  # fmt: skip


def test_a_report_tells_what_a_restore_reads_and_publishes_again(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = facts(capsys, damaged)["resume"]
    assert (resume["epoch"], resume["rolled_back"], resume["seconds"]) == (2, "3-5", 3.0)
    main(["plan-recovery", f"{damaged}@2", "-o", "json"])
    plan = json.loads(capsys.readouterr().out)["body"]
    assert resume["records"] == plan["cost"]["source_records"] > 0
    assert resume["in_flight"] == plan["cost"]["log_records"]
    rewinds = {row["split"]: (row["from"], row["to"]) for row in plan["rewind"]}
    assert {row["split"]: (row["reached"], row["resumes_at"]) for row in resume["splits"]} == rewinds
    assert resume["output"] == ["Sink out: no row is published twice (exactly-once)."]
    assert f"{resume['records']} records that later epochs show as read" in page_of(capsys, damaged).text


def test_a_report_of_one_epoch_knows_the_epochs_after_it(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = facts(capsys, f"{store}@2")["resume"]
    assert (resume["epoch"], resume["rolled_back"], resume["seconds"]) == (2, "3-5", 3.0)
    assert "Report of an epoch" in page_of(capsys, f"{store}@2").text
    spark = facts(capsys, f"{copy_of('wc_rocks', tmp_path)}@1")["resume"]
    assert spark["rolled_back"] == "2-3"
    assert spark["output"][0].startswith("Batches 2 to 3 ran to the end")
    make_retained(tmp_path / "checkpoints")
    flink = facts(capsys, f"{tmp_path}/checkpoints/{JOB}@2")["resume"]
    assert flink["rolled_back"] == "5"
    assert "was completed: sinks have published this output already" in flink["output"][0]


def test_an_epoch_that_cannot_be_restored_has_no_effect_of_a_restore(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = facts(capsys, f"{damaged}@4")
    assert report["resume"] is None
    assert report["newest"] is None
    assert "age" not in page_of(capsys, f"{damaged}@4").ids


def test_sinks_without_a_transaction_publish_again(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(capsys, shop)["resume"]["output"] == [
        "Sinks late, every: no row is published twice (exactly-once).",
        "Sink told: rows that were published after the epoch are published again.",
    ]


def test_the_output_of_a_spark_query_is_that_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = copy_of("broken_missing_sst", tmp_path)
    output = facts(capsys, checkpoint)["resume"]["output"]
    assert output[0] == "Batch 3 ran to the end: the sink has the output, and gets the same input again."
    main(["plan-recovery", str(checkpoint)])
    planned = " ".join(capsys.readouterr().out.split())
    assert all(sentence in planned for sentence in output)
    assert "epoch" not in page_of(capsys, checkpoint).text


# -- files ---------------------------------------------------------------------------------------------------


def saved(capsys: pytest.CaptureFixture[str], *command: object, code: int = 0) -> dict[str, Any]:
    """What a command says, in a file as well."""
    name, *args = command
    answer = answer_of(str(name), capsys, *args, code=code)
    Path("saved.json").write_text(json.dumps(answer))
    return answer


def test_a_validation(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = saved(capsys, "validate", damaged, code=3)
    report = facts(capsys, "saved.json", "--store", damaged)
    assert (report["about"], report["state"]) == ("validation", "damaged")
    assert [epoch["verdict"] for epoch in report["epochs"]] == [epoch["verdict"] for epoch in said["epochs"]]
    assert report["problems"] == facts(capsys, damaged, "--verify")["problems"]
    assert {node["id"]: node["highlight"] for node in report["graph"]["nodes"]}["seen"] == "damaged"
    shutil.rmtree(damaged)
    alone = facts(capsys, "saved.json")
    assert "no store was named (--store)" in alone["graph"]["note"]
    assert [node["id"] for node in alone["graph"]["nodes"]]
    assert [one["examples"] for one in alone["problems"]] == [one["examples"] for one in report["problems"]]
    relative = "Paths are relative to the folder in which `abs validate` was run: damaged"
    assert (relative in alone["notes"], relative in report["notes"]) == (True, False)
    assert "epoch-4" in page_of(capsys, "saved.json").ids


def test_a_comparison(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(capsys, "diff", f"{store}@2", f"{store}@4")
    report = facts(capsys, "saved.json", "--store", store)
    assert (report["about"], report["state"]) == ("diff", "warning")
    assert {node["id"]: node["highlight"] for node in report["graph"]["nodes"]} == {
        "lines": None, "seen": "changed", "out": None,
    }  # fmt: skip
    assert [table["title"] for table in report["tables"]] == ["State of operators", "Source positions", "Channel logs"]
    (positions,) = (table for table in report["tables"] if table["title"] == "Source positions")
    assert {"task", "split", "from offset", "to offset", "moved offset"} <= set(positions["columns"])
    assert all(isinstance(cell, int | None) for row in positions["rows"] for cell in row[2:])
    assert page_of(capsys, "saved.json").text.count("in/0.txt") == 1


@pytest.mark.parametrize(
    ("options", "marks", "next"),
    [((), {"lines": "restarts", "seen": "restarts", "out": "restarts"},
      ["abs restore {folder}/plan.json --job JOB --dry-run", "abs restore {folder}/plan.json --job JOB"]),
     (("--failed", "out/0"), {"lines": "restarts", "seen": "restarts", "out": "restarts"},
      ["abs inspect {store} --watch"])],  # the job that runs carries it out itself
)  # fmt: skip
def test_a_plan(
    store: Path, options: tuple[str, ...], marks: dict[str, str], next: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    saved(capsys, "plan-recovery", store, *options, "--out", "plan.json")
    report = facts(capsys, "plan.json", "--store", store)
    assert (report["about"], report["epoch"]) == ("plan", 4)
    assert {node["id"]: node["highlight"] for node in report["graph"]["nodes"]} == marks
    assert {"restart", "rewind"} <= {table["title"] for table in report["tables"]}
    assert report["next"] == [command.format(store=store.resolve(), folder=Path.cwd()) for command in next]
    shutil.rmtree(store)
    alone = facts(capsys, "plan.json")
    assert {node["id"]: node["highlight"] for node in alone["graph"]["nodes"]} == marks
    assert "Restart" in page_of(capsys, "plan.json").text


def test_a_plan_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run_command("plan-recovery", capsys, copy_of("wc_rocks", tmp_path), "-o", "json")
    assert code == 0
    assert checked(out)
    Path("plan.json").write_text(out)
    report = facts(capsys, "plan.json")
    assert report["summary"] == "Back to batch 3: the whole job restarts, from a copy"
    assert report["next"][0] == f"abs restore {tmp_path}/plan.json --to NEW_DIRECTORY --dry-run"


def test_a_plan_of_flink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (job,) = (FLINK / "hashmap-checkpoint").iterdir()
    saved(capsys, "plan-recovery", job, "--out", "plan.json")
    said = json.loads(Path("plan.json").read_bytes())
    report = facts(capsys, "plan.json")
    assert report["next"] == [said["body"]["command"], f"abs restore {tmp_path}/plan.json --to NEWDIR"]


# -- what jobs of every kind say -----------------------------------------------------------------------------

SHOP = """\
version: 1
job: shop
operators:
  orders:
    source:
      type: generate
      rows: 400
      columns: {user: "text('u-', row % 7)", price: "row % 10", at: "at('2026-01-01T00:00:00Z', row)"}
      event_time: {column: at, delay: 5s}
  busy:
    from: orders
    window: {time: at, tumbling: 1h}
    reduce: {key: [user], n: {count: "*"}}
  late:
    from: {busy: {output: late}}
    sink: {type: jsonl, path: late}
  every:
    from: orders
    sink: {type: parquet, path: every}
  told:
    from: orders
    sink: {type: stdout, row_id: id}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store of a job with windows, and with sinks that are written before and after the manifest."""
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(SHOP)
    assert main(["run", "job.yaml", "--store", "store", "--engine", "inline", "--quiet"]) == 0
    capsys.readouterr()
    return Path("store")


def test_operators_say_what_an_epoch_shows_and_how_far_event_time_is(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {row["id"]: row for row in facts(capsys, shop)["depth"]["operators"]}
    assert {id: row["published_rows"] for id, row in rows.items()} == {
        "orders": None, "busy": None, "late": None, "every": 400, "told": 400,
    }  # fmt: skip
    assert rows["every"]["published_bytes"] == sum(part.stat().st_size for part in Path("every").glob("part-*"))
    assert {row["watermark"] for row in rows.values()} == {"end"}
    text = page_of(capsys, shop).text
    for column in ("Published", "Bytes published", "Watermark (UTC)"):
        assert column in text
    assert "Skipped" not in text


def test_a_fact_that_only_some_operators_have_is_empty_of_the_others(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page_of(capsys, shop)
    (table,) = re.findall(r'(?s)<table id="operators-table">.*?</table>', Path("page.html").read_text())
    (row,) = re.findall(r'<td class="name">late</td>[^\n]*', table)
    assert '<td class="size" data-key=""></td>' in row


def test_an_edge_of_another_output_says_so(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    links = {(link["from"], link["to"]): link["partition"] for link in facts(capsys, shop)["graph"]["links"]}
    assert (links["busy", "late"], links["orders", "every"]) == ("late forward", "forward")


def test_what_was_not_checked_has_its_reason(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unchecked = {row["code"]: row["reason"] for row in facts(capsys, store)["unchecked"]}
    assert unchecked["digest-mismatch"] == unchecked["row-mismatch"] == "no file was read"
    read = {row["code"] for row in facts(capsys, store, "--verify")["unchecked"]}
    assert not read & {"digest-mismatch", "row-mismatch"}


def test_states_have_the_names_of_their_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (job,) = (FLINK / "sql").iterdir()
    states = facts(capsys, job)["depth"]["states"]
    assert {"Join[11]", "GroupAggregate[4]"} <= {state["name"] for state in states}
    page = page_of(capsys, job).text
    assert "Join[11] left-records 56.6 KiB" in page


# -- the file, and what is refused ---------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for name in ("a.html", "b.html"):
        assert run(capsys, store, "--out", name)[0] == 0
        pages.append(Path(name).read_bytes())
    assert pages[0] == pages[1]


def test_an_earlier_page_is_replaced_and_a_store_never_written_to(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, f"{store}@1", "--out", "page.html")[0] == 0
    code, out, _ = run(capsys, store, "--out", "page.html")
    assert code == 0
    assert out.startswith("UNVERIFIED: newest restorable: epoch 4. Not restorable: epoch 5 (incomplete). Only ")
    assert Path("page.html").read_bytes().startswith(b"<!DOCTYPE html>")
    code, out, err = run(capsys, store, "--out", store / "page.html")
    assert (code, out) == (2, "")
    assert "is inside" in err
    assert not (store / "page.html").exists()
    code, _, err = run(capsys, store, "--out", "no/such/page.html")
    assert code == 2
    assert "no/such" in err


def test_a_page_has_to_have_a_place(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, store)
    assert code == 2
    assert "--out" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "has no schema"),
        (b"{}", "has no schema"),
        (
            b'{"schema": "abs.run", "version": "1.0"}',
            "`abs report` does not support this file, which has the schema abs.run",
        ),
        (b'{"schema": "abs.validate", "version": "1.0"}', "is not a valid abs.validate"),
        (b'{"schema": "abs.diff", "version": "1.0", "from": 3}', "is not a valid abs.diff"),
        (b'{"schema": "abs.plan", "version": "1.0"}', "plan"),
    ],
)
def test_a_file_that_is_nothing_of_ours_is_refused(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saved.json").write_bytes(content)
    code, _, err = run(capsys, "saved.json", "--out", "page.html")
    assert code == 2
    assert message in err
    assert not Path("page.html").exists()


def test_a_version_that_is_not_known_and_a_store_that_is_not_there_have_their_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saved.json").write_text('{"schema": "abs.validate", "version": "2.0"}')
    assert run(capsys, "saved.json", "--out", "page.html")[0] == 12
    assert run(capsys, "nowhere", "--out", "page.html")[0] == 10


@pytest.mark.parametrize("named", ["s3://elsewhere/snapshots", None])
def test_the_store_that_a_saved_file_names_is_not_looked_at(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str | None
) -> None:
    """Anybody may have written the file. named: None for the store on this machine, which is there."""
    said = saved(capsys, "validate", damaged, code=3)
    Path("saved.json").write_text(json.dumps({**said, "store": named or said["store"]}))

    def refused(*args: object, **options: object) -> None:
        raise AssertionError(f"{args} was opened")

    monkeypatch.setattr("abscli.stores.registry.storage_at", refused)
    report = facts(capsys, "saved.json")
    assert "no store was named (--store)" in report["graph"]["note"]


def test_names_in_a_saved_file_are_text(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = saved(capsys, "validate", damaged, code=3)
    evil = "</script><img src=x onerror=alert(1)>\u202e\0"
    for epoch in said["epochs"]:
        for finding in epoch["findings"]:
            finding.update(task=f"{evil}/1", channel=evil, path=evil, message=evil)
    Path("saved.json").write_text(json.dumps({**said, "job": evil}))
    taken = page_of(capsys, "saved.json")
    assert not [tag for tag, _ in taken.tags if tag == "img"]
    assert json.loads("".join(taken.texts["facts"]))["job"] == evil


def test_what_the_store_says_of_itself_is_text(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rename(facts: dict[str, Any]) -> None:
        facts["job"] = "<b onclick=alert(1)>\u202e"

    change(store / layout.STORE, rename)
    taken = page_of(capsys, store)
    assert not [attributes for _, attributes in taken.tags if "onclick" in attributes]


def test_the_facts_can_be_had_line_by_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, store, "-o", "ndjson")
    assert code == 0
    header, *lines = map(json.loads, out.splitlines())
    assert header["schema"] == "abs.report"
    assert [line["type"] for line in lines] == ["problem", *["epoch"] * 5]


def test_templates_are_in_the_wheel() -> None:
    from hatchling.builders.wheel import WheelBuilder

    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"abscli/pages/templates/report.{kind}" for kind in ("html", "css", "js")} <= files
    assert html_of.__module__ == "abscli.pages.html"


def test_a_file_that_is_nested_without_end_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[" * 500_000, '{"schema":"abs.diff","version":"1.0","x":' + "[" * 500_000):
        Path("x.json").write_text(text)
        code, _, err = run(capsys, "x.json", "--out", "page.html")
        assert code == 2
        assert "x.json: is nested too deeply" in err
