"""Completion scripts and man pages are what the command line says, and shells and mandoc accept them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from abscli.cli import generate
from abscli.cli.overview import COMMANDS
from abscli.examples.starting import EXAMPLES
from abscli.text.pages import Page

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return generate.files()


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return generate.pages()


def test_what_is_committed_is_what_the_generator_writes(made: dict[str, str]) -> None:
    for name, text in made.items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run 'make docs'"


def test_there_is_nothing_beside_what_is_generated(made: dict[str, str]) -> None:
    there = {f"{folder}/{path.name}" for folder in ("man", "completions") for path in (ROOT / folder).iterdir()}
    there.remove("man/guide")
    assert there == {name for name in made if name.startswith(("man/", "completions/"))}


def test_the_generator_gives_the_same_twice(made: dict[str, str]) -> None:
    assert generate.files() == made


def test_check_says_which_file_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "_root", lambda: tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "man" / "abs.1").write_text("something else")
    (tmp_path / "man" / "abs-gone.1").write_text("")
    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "man/abs.1" in said
    assert "man/abs-gone.1" in said


def test_every_command_has_a_page_that_ends_as_all_do(pages: list[Page], made: dict[str, str]) -> None:
    assert [page.name for page in pages] == ["", *COMMANDS]
    for page in pages:
        sections = re.findall(r"^\.SH (.+)$", made[f"man/{page.title}.1"], re.MULTILINE)
        assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
        assert sections[-5:] == ["OPTIONS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


def test_every_page_has_a_date_that_does_not_change(made: dict[str, str]) -> None:
    heads = [text.splitlines()[0] for name, text in made.items() if name.startswith("man/")]
    (date,) = {head.split('"')[1] for head in heads}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_every_option_is_explained_and_completed(pages: list[Page], made: dict[str, str]) -> None:
    for page in pages:
        for option in page.options:
            assert option.help.endswith("."), f"{page.title} {option.names}"
            for name in option.names:
                assert name in made["completions/abs.bash"]
                assert name.replace("-", r"\-") in made[f"man/{page.title}.1"]


@pytest.mark.parametrize(
    ("shell", "script"), [("bash", "abs.bash"), ("zsh", "_abs"), ("fish", "abs.fish")], ids=["bash", "zsh", "fish"]
)
def test_a_shell_accepts_its_script(shell: str, script: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", ROOT / "completions" / script], check=True)


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_finds_nothing_in_the_man_pages() -> None:
    pages = sorted((ROOT / "man").glob("*.1"))
    done = subprocess.run(["mandoc", "-Tlint", "-Wall", *pages], capture_output=True, text=True)
    assert done.stdout == ""


def bash_completes(line: str, folder: Path) -> list[str]:
    """What bash offers at the end of `line`, with the words split as readline does, at `=` too."""
    words = [word for word in re.split(r"\s+|(=)", line) if word]
    if line.endswith((" ", "=")):
        words.append("")
    # `compopt` works in a completion only; the script has to live without it.
    code = (
        f'source "{ROOT}/completions/abs.bash"\n'
        'COMP_LINE=$1 COMP_POINT=${#1}\nshift\n'
        'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n_abs\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", line, *words], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return [offer for offer in done.stdout.split("\n") if offer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").touch()
    (tmp_path / "my job.yaml").touch()
    (tmp_path / "stores").mkdir()
    return tmp_path


def test_bash_completes_commands(folder: Path) -> None:
    assert bash_completes("abs ", folder) == list(COMMANDS)
    assert bash_completes("abs re", folder) == ["report", "restore", "rewrite", "rebuild"]
    assert bash_completes("abs -q pl", folder) == ["plan-recovery"]
    assert "--version" in bash_completes("abs --", folder)


def test_bash_completes_options_of_the_command(folder: Path) -> None:
    assert bash_completes("abs run --int", folder) == ["--interval"]
    assert bash_completes("abs -v run job.yaml --epoch", folder) == ["--epoch-timeout"]
    assert bash_completes("abs inspect --interv", folder) == []


def test_bash_completes_choices(folder: Path) -> None:
    assert bash_completes("abs run --policy ", folder) == ["aligned", "unaligned", "at-least-once"]
    assert bash_completes("abs run --policy at", folder) == ["at-least-once"]
    assert bash_completes("abs topology -o ", folder) == [
        "table", "wide", "json", "ndjson", "dot", "mermaid", "svg", "yaml",
    ]  # fmt: skip
    assert bash_completes("abs inspect --output=js", folder) == ["json"]
    assert bash_completes("abs inspect --output=", folder) == ["table", "json", "ndjson"]
    assert bash_completes("abs completion ", folder) == ["bash", "zsh", "fish"]
    assert bash_completes("abs help va", folder) == ["validate"]


def test_bash_completes_files_and_directories(folder: Path) -> None:
    assert set(bash_completes("abs topology ", folder)) == {"job.yaml", "my job.yaml", "stores"}
    assert bash_completes("abs inspect ", folder) == ["stores"]
    assert bash_completes("abs run job.yaml --store ", folder) == ["stores"]
    assert bash_completes("abs plan-recovery --topology j", folder) == ["job.yaml"]


def test_bash_completes_plans_and_examples(folder: Path) -> None:
    (folder / "plan.json").touch()
    assert bash_completes("abs restore p", folder) == ["plan.json"]
    assert set(bash_completes("abs report ", folder)) == {"job.yaml", "my job.yaml", "plan.json", "stores"}
    assert bash_completes("abs diff stores j", folder) == ["job.yaml"]
    assert bash_completes("abs validate --topology p", folder) == ["plan.json"]
    assert bash_completes("abs init --example ", folder) == list(EXAMPLES)
    assert bash_completes("abs init --example=nexmark-q5", folder) == ["nexmark-q5"]


def test_every_shell_knows_the_examples_and_which_arguments_are_files(made: dict[str, str]) -> None:
    names = " ".join(EXAMPLES)
    assert f"--example) kind=option-choice choices='{names}' ;;" in made["completions/abs.bash"]
    assert f":EXAMPLE:({names})'" in made["completions/_abs"]
    assert f"-l example -r -f -a '{names}'" in made["completions/abs.fish"]
    assert "':PLAN:_files'" in made["completions/_abs"]
    assert "':REF: _abs_offers ref-or-file'" in made["completions/_abs"]
    fish = made["completions/abs.fish"].splitlines()
    assert "complete -c abs -n '__abs_is restore' -F" in fish
    assert "complete -c abs -n '__abs_is report' -f -k -a '(__abs_offers ref-or-file)'" in fish


def test_fish_keeps_the_order_of_what_a_store_offers(made: dict[str, str]) -> None:
    offered = [line for line in made["completions/abs.fish"].splitlines() if "-a '(__abs_offers" in line]
    assert offered
    assert all(" -k " in line for line in offered)


def test_bash_offers_nothing_where_nothing_is_known(folder: Path) -> None:
    assert bash_completes("abs run --interval ", folder) == []
    assert bash_completes("abs run --store stores job.yaml ", folder) == []
    assert bash_completes("abs nonsense ", folder) == []


def fish_completes(line: str, folder: Path) -> list[str]:
    """What fish offers at the end of `line`, without the descriptions."""
    code = f'source "{ROOT}/completions/abs.fish"; complete -C "{line}"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        capture_output=True, text=True, check=True, cwd=folder, env={**os.environ, "HOME": str(folder)},
    )
    assert done.stderr == ""
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_choices_and_files(folder: Path) -> None:
    assert set(fish_completes("abs ", folder)) == set(COMMANDS)
    assert fish_completes("abs -q res", folder) == ["restore"]
    assert fish_completes("abs restore j", folder) == ["job.yaml"]
    assert set(fish_completes("abs report ", folder)) == {"job.yaml", "my job.yaml", "stores/"}
    assert set(fish_completes("abs init --example nexmark-q", folder)) == set(EXAMPLES)
    assert fish_completes("abs run --inte", folder) == ["--interval"]
    assert set(fish_completes("abs run --policy ", folder)) == {"aligned", "unaligned", "at-least-once"}
    assert fish_completes("abs inspect --output=js", folder) == ["--output=json"]
    assert fish_completes("abs inspect st", folder) == ["stores/"]
    assert fish_completes("abs topology j", folder) == ["job.yaml"]
    assert fish_completes("abs run --interval ", folder) == []
