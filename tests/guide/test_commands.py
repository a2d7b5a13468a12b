"""The commands that the README and the guide show: each can be typed, and does what is shown of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import abscli
from abscli.examples.inputs import write_job
from formats.native import layout
from tests.support.guide.blocks import ANY, HOME, PAGES, Command, agree, blocks, run
from tests.support.guide.checkpoints import make_retained
from tests.support.guide.typed import calls, check_words
from tests.support.imports import ROOT
from tests.support.jobs.damaged import stopped
from tests.support.spark.data import copy_of
from tests.support.stores.small import FIRST, make_store

README = ROOT / "README.md"
PAGES_SHOWN = [README, *sorted(PAGES.rglob("*.md"))]
PROMPT = "    $ "
ENDS = re.compile(r"[|;&>]+|\d?>&?\d?")


def typed(page: Path) -> Iterator[Command]:
    """The commands in a page's indented blocks, with what stands below them."""
    command: Command | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(PROMPT):
            if command is not None:
                yield command
            command = Command(number, line.removeprefix(PROMPT))
        elif command is not None and line.startswith("    "):
            command.printed.append(line[4:])
        elif command is not None and line:
            yield command
            command = None
    if command is not None:
        yield command


def shown(page: Path) -> Iterator[Command]:
    """The commands in a page's indented blocks, and those of its consoles."""
    yield from typed(page)
    yield from (block for block in blocks(page) if isinstance(block, Command))


@pytest.mark.parametrize("page", PAGES_SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    for command in shown(page):
        for words in calls(command.text):
            check_words(words, f"{page.name}:{command.line}: {command.text}")


@pytest.mark.parametrize("page", PAGES_SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_within_a_sentence_or_a_table_exists(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    blocks_without_prompt = re.findall(r"(?m)^    (abs [^#\n]+)", text)
    for code in [*re.findall(r"`(abs [^`<]+)`", text), *blocks_without_prompt]:
        for words in calls(re.sub(r"\\\||\s+|[][]", " ", code)):
            check_words(words, f"{page.name}: {code}", is_complete=False)


@pytest.mark.parametrize("page", [*PAGES_SHOWN, ROOT / "BENCHMARKS.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    links = [*re.findall(r"\]\(([^)#\s]+)", text), *re.findall(r'(?:src|srcset)="([^"]+)"', text)]
    for link in links:
        if not link.startswith(("https:", "http:")):
            # overview.md is the README on the site
            assert (page.parent / link).exists() or link.endswith("overview.md"), link


def test_what_cannot_be_typed_is_noticed() -> None:
    assert list(calls("X=1 abs run a.yaml --store 's t' | cat; abs gc s && ls")) == [
        ["run", "a.yaml", "--store", "s t"], ["gc", "s"],
    ]  # fmt: skip


def write_word_count(folder: Path, *, files: int = 3, lines: int = 200) -> None:
    """Puts the guide's word count, its functions, and texts to count into a folder."""
    text = (PAGES / "jobs" / "file.md").read_text(encoding="utf-8")
    (yaml,) = re.findall(r"```yaml\n(version: 1\njob: wordcount\n.*?)```", text, re.DOTALL)
    functions = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (folder / "job.yaml").write_text(yaml)
    (folder / "mywords.py").write_text(functions)
    (folder / "corpus").mkdir()
    for i in range(files):
        (folder / "corpus" / f"{i}.txt").write_text(f"to be or not to be spark w{i}\n" * lines)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the guide's word count."""
    folder = tmp_path_factory.mktemp("guide")
    write_word_count(folder)
    return folder


RUN = (
    "abs run job.yaml --store snapshots --engine inline",
    "abs run job.yaml --store snapshots --state-memory 500M",
    "abs run job.yaml --store snapshots --engine inline --trace trace.jsonl",
    "abs simulate --check trace.jsonl",
    "abs simulate job.yaml --recovery local --workers 3 --crash partial",
    "abs run job.yaml --store snapshots --resume --parallelism counts=7 --parallelism printed=7",
    "abs topology orders.yaml --guarantee",
    "abs run job.yaml --dry-run --sample 2",
    "abs simulate imports.yaml --runs 300",
    "abs state snapshots@7 counts --key spark",
    'abs state snapshots counts --where "n >= 1000 and word != the" --out counts.parquet',
    "abs diff snapshots@7 snapshots@8",
    "abs plan-recovery snapshots@4 --strategy repair --out plan.json",
    "abs restore plan.json --job job.yaml --yes",
    "abs report snapshots --out report.html",
)
"""Commands that are run here, each in a folder of what it is shown on."""

FLINK = "checkpoints/10d2f428c00a04dfaad672ff7b7e0dbc"
ON_FLINK = (
    f"abs inspect {FLINK}", f"abs plan-recovery {FLINK} --out plan.json", "abs restore plan.json --to copy",
    f"abs state {FLINK}@2 totals --state per-item --key user-9",
)  # fmt: skip
ON_SPARK = (
    "abs validate words-checkpoint", "abs plan-recovery words-checkpoint --out plan.json",
    "abs restore plan.json --to words-restored",
)  # fmt: skip
ON_A_JOB = (
    "abs init sales && cd sales", "abs topology job.py", "abs run job.py --store snapshots --engine inline",
    "abs validate snapshots --job job.py",
)  # fmt: skip
"""The README's own commands: each group is run in order, in one folder."""

ELSEWHERE = {
    "cd /tmp/abs-demo/imports/killed && rm -r store out": "tests/guide/test_losses.py has a folder of its own",
    **dict.fromkeys(
        ("abs topology imports.yaml", "abs run imports.yaml --store snapshots --interval 250ms --restarts 0", "echo $?",
         "abs inspect snapshots", "abs inspect snapshots@2", "abs plan-recovery snapshots --out plan.json",
         "abs restore plan.json --job imports.yaml --yes", "abs run imports.yaml --store snapshots --resume",
         "cat out/*.jsonl | sort | uniq -d | wc -l", "abs run job.yaml --store snapshots",
         "abs run job.yaml --store snapshots --recovery local"), "tests/guide/test_losses.py"),
    "abs topology wordjob.py -o yaml": "tests/guide/test_python_job.py",
    "curl -s localhost:9400/metrics | grep -v '^#' | grep -v bucket": "tests/guide/test_service.py",
    "abs run job.yaml --store /shared/snapshots --master spark://head:7077 --workers 3":
        "needs several hosts, or root for what stands for them: tests/engine/hosts",
    "abs simulate job.yaml --exhaustive --crash full --subtasks 1 --records 2":
        "takes minutes: tests/sim/test_simulate.py does it on smaller jobs",
    """duckdb -c "SELECT * FROM 'counts.parquet' ORDER BY n DESC LIMIT 3\"""": "is no command of abs",
}  # fmt: skip
"""And who runs the others, or why nobody does."""


def test_every_command_is_run_or_it_is_said_why_not() -> None:
    assert {command.text for command in shown(README)} == {*ON_FLINK, *ON_SPARK, *ON_A_JOB}
    assert {command.text for command in guide()} == {*RUN, *ELSEWHERE}
    assert not set(RUN) & set(ELSEWHERE)
    for where in ELSEWHERE.values():
        for path in re.findall(r"tests/[\w/.]+", where):
            assert (ROOT / path).exists(), path


def guide() -> Iterator[Command]:
    """The commands in indented blocks of the guide, without those of its pages on Flink and Spark, which test_shown.py
    runs. Consoles are run by test_pages.py."""
    for page in PAGES_SHOWN[1:]:
        if page.name not in ("flink.md", "spark.md"):
            yield from typed(page)


def the(text: str) -> Command:
    """A command of the guide, to be changed where it has to be."""
    command = next(command for command in guide() if command.text == text)
    return Command(command.line, text, list(command.printed))


def prints_what_is_shown(command: Command, folder: Path) -> list[str]:
    """What it prints, held against the page."""
    printed = run(command, folder)
    assert not any(line.startswith("[exit") for line in printed), printed
    if command.printed:
        assert agree([ANY, *command.printed, ANY], printed), "\n".join(printed)
    return printed


@pytest.mark.parametrize("text", RUN[:5])
def test_the_word_count_does_what_is_shown(job: Path, text: str) -> None:
    once = the(text)
    if " run " in text:
        once.text = f"rm -rf out snapshots; {text}"
    if " run " in text and "--engine" not in text:
        once.text += " --engine inline"
    if " simulate " in text and "--check" not in text:
        once.text += " --runs 20"
    prints_what_is_shown(once, job)


def test_a_job_gets_more_tasks_as_it_is_shown(tmp_path: Path) -> None:
    write_word_count(tmp_path)
    assert not run(Command(0, "abs run job.yaml --store snapshots --engine inline --quiet > out.txt"), tmp_path)
    more = the("abs run job.yaml --store snapshots --resume --parallelism counts=7 --parallelism printed=7")
    more.text += " --engine inline"
    prints_what_is_shown(more, tmp_path)


ORDERS = """\
version: 1
job: orders
operators:
  bought: {source: {type: jsonl, path: in/*, schema: {user: string}}}
  rated: {from: bought, map: mine:rated, deterministic: false}
  customers: {from: rated, sink: {type: jsonl, path: out}}
  clicks: {source: {type: mine}}
  visited: {from: clicks, sink: {type: mine}}
"""


def test_what_holds_from_end_to_end_is_told_as_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(ORDERS)
    prints_what_is_shown(the("abs topology orders.yaml --guarantee"), tmp_path)


def test_a_sample_is_shown_with_what_it_would_leave_out(tmp_path: Path) -> None:
    lines = [f'{{"id": {i}, "v": {i + 1}}}' for i in range(100)]
    lines[3] = '{"id": "x3"}'
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    source = "{type: jsonl, path: rows.jsonl, schema: {id: int64, v: int64}}"
    (tmp_path / "job.yaml").write_text(
        f"version: 1\njob: sampled\noperators:\n  rows: {{source: {source}, on_error: skip}}\n"
        "  out: {from: rows, sink: {type: jsonl, path: out}}\n"
    )
    prints_what_is_shown(the("abs run job.yaml --dry-run --sample 2"), tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_a_protocol_is_tried_as_it_is_shown(tmp_path: Path) -> None:
    job = write_job("imports", tmp_path / "example")
    fewer = the("abs simulate imports.yaml --runs 300")
    fewer.text = "abs simulate imports.yaml --runs 20"
    prints_what_is_shown(fewer, job.parent)


def test_state_is_asked_for_as_it_is_shown(tmp_path: Path) -> None:
    write_word_count(tmp_path)
    first = "abs run job.yaml --store snapshots --engine inline --quiet > out.txt"
    assert not run(Command(0, first), tmp_path)
    epoch = str(abscli.open_store(tmp_path / "snapshots").resolve())
    key = the("abs state snapshots@7 counts --key spark")
    key.text = key.text.replace("@7", f"@{epoch}")
    prints_what_is_shown(key, tmp_path)
    found = the('abs state snapshots counts --where "n >= 1000 and word != the" --out counts.parquet')
    found.text = found.text.replace("1000", "600")
    prints_what_is_shown(found, tmp_path)
    rows = pq.read_table(tmp_path / "counts.parquet").to_pylist()
    assert {row["word"] for row in rows} == {"be", "not", "or", "spark", "to"}
    (tmp_path / "corpus" / "more.txt").write_text("spark again\n")
    assert not run(Command(0, f"rm -r out; {first.replace('snapshots', 'others')}"), tmp_path)
    between = the("abs diff snapshots@7 snapshots@8")
    between.text = f"abs diff snapshots@{epoch} others"
    between.printed = [line.replace("epoch 8 of snapshots", "epoch 8 of others") for line in between.printed]
    prints_what_is_shown(between, tmp_path)


def test_a_report_says_how_it_stands_as_it_is_shown(tmp_path: Path) -> None:
    make_store(tmp_path / "snapshots")
    file = tmp_path / "snapshots" / layout.state(4, "seen/1", FIRST)
    file.write_bytes(file.read_bytes()[:100])
    prints_what_is_shown(the("abs report snapshots --out report.html"), tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 0


def test_an_epoch_is_mended_as_it_is_shown(tmp_path: Path) -> None:
    stopped(tmp_path, "counting")
    (tmp_path / "store").rename(tmp_path / "snapshots")
    (tmp_path / "job.json").rename(tmp_path / "job.yaml")
    operators = abscli.open_store(tmp_path / "snapshots").view.detail(4).operators
    tasks = {str(task.task): task for operator in operators for task in operator.tasks}
    file = tmp_path / "snapshots" / tasks["counts/0"].files[-1].path
    file.write_bytes(file.read_bytes()[:-1])
    plan = the("abs plan-recovery snapshots@4 --strategy repair --out plan.json")
    plan.printed = [line.replace("/data/", f"{HOME}/") for line in plan.printed]
    prints_what_is_shown(plan, tmp_path)
    prints_what_is_shown(the("abs restore plan.json --job job.yaml --yes"), tmp_path)


def runs_as_the_readme_shows(texts: tuple[str, ...], folder: Path) -> None:
    """Run commands of the README in order, in one folder; `cd` leads into another."""
    for text in texts:
        command = next(command for command in shown(README) if command.text == text)
        printed = run(command, folder)
        damaged = text == ON_SPARK[0]
        assert (printed[-1:] == ["[exit 3]"]) == damaged, printed
        lines = [line.replace("/data/", f"{HOME}/") for line in command.printed]
        assert agree([ANY, *lines, ANY], printed), "\n".join(printed)
        folder = folder / text.partition("cd ")[2]


def test_the_readme_s_flink_checkpoint_is_recovered(tmp_path: Path) -> None:
    make_retained(tmp_path / "checkpoints")
    runs_as_the_readme_shows(ON_FLINK, tmp_path)
    assert (tmp_path / "copy" / "_metadata").is_file()


def test_the_readme_s_lines_of_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_retained(tmp_path / "checkpoints")
    monkeypatch.chdir(tmp_path)
    section = README.read_text(encoding="utf-8").partition("\n## Python API\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"(?m)^    (.*)$", section)), names)
    assert names["table"].num_rows > 0
    assert (tmp_path / "plan.json").is_file()


def test_the_readme_s_spark_checkpoint_is_recovered(tmp_path: Path) -> None:
    copy_of("broken_swapped_delta", tmp_path).rename(tmp_path / "words-checkpoint")
    runs_as_the_readme_shows(ON_SPARK, tmp_path)
    assert (tmp_path / "words-restored" / "offsets").is_dir()


def test_the_readme_s_job_runs(tmp_path: Path) -> None:
    runs_as_the_readme_shows(ON_A_JOB, tmp_path)


def test_the_readme_is_short_and_says_first_what_abs_reads() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert sum(len(line.split()) for line in lines) <= 1500
    first = "\n".join(lines[:60])
    assert all(word in first for word in ("Flink", "Spark", "without a JVM", "pip install", "make test", "abs inspect"))
