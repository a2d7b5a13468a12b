"""The shell of the command line: help, errors, exit codes, output forms, and the environment."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from abscli import __version__
from abscli.cli import exits, main, output
from abscli.cli.app import load
from abscli.cli.options import duration, positive_duration
from abscli.cli.overview import COMMANDS, OPTIONS, overview
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from formats import errors

ROOT = Path(__file__).resolve().parents[2]
JOB = """version: 1
job: loops
operators:
  a: {source: {type: text, path: x}}
  b: {from: [a, c], map: m:f}
  c: {from: b, flat_map: m:g}
"""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ABS_") or name in ("COLUMNS", "FORCE_COLOR")]:
        monkeypatch.delenv(name)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


def process(*arguments: str, code: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """`abs` in a process of its own; code: what runs before it."""
    start = f"import sys\n{code}\nfrom abscli.cli.main import main\nsys.exit(main())"
    options = {"capture_output": True, "text": True, "timeout": 300} | options
    return subprocess.run([sys.executable, "-c", start, *arguments], **options)


def told(text: str) -> dict[str, Any]:
    """The error object on stderr, valid by its schema."""
    schema = json.loads((ROOT / "formats" / "schemas" / "abs.error.json").read_text())
    error = json.loads(text)
    Draft202012Validator(schema).validate(error)
    assert isinstance(error, dict)
    return error


def test_abs_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    shown = capsys.readouterr().out
    assert main.main(["--help"]) == 0
    assert capsys.readouterr().out == shown
    for name, summary in COMMANDS.items():
        assert name in shown
        assert summary in shown


def test_help_is_the_same_whichever_way_it_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["--help"])
    quick = capsys.readouterr().out
    main.main(["-q", "--help"])
    assert capsys.readouterr().out == quick


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_its_summary_and_ends_with_references(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: abs {name} [OPTIONS]")
    assert COMMANDS[name] in shown
    last = shown[shown.index("Exit status:"):]
    assert all(f"\n  {code}" in last for code in load(name).exit_status)  # type: ignore[attr-defined]
    assert shown.index("Examples:") < shown.index("Exit status:") < shown.index("See also:")
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_the_name_of_a_command_print_what_its_help_option_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([name, "--help"]) == 0
    shown = capsys.readouterr()
    assert main.main(["help", name]) == 0
    assert capsys.readouterr() == shown


@pytest.mark.parametrize("arguments", [["help"], ["-q", "help"]])
def test_help_alone_prints_the_overview(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    shown = capsys.readouterr()
    assert main.main(arguments) == 0
    assert capsys.readouterr() == shown


@pytest.mark.parametrize("name", ["bogus", "topologi", "help run"])
def test_help_refuses_an_unknown_command_as_abs_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.main([name])
    message = capsys.readouterr()
    assert main.main(["help", name]) == code == exits.USAGE
    assert capsys.readouterr() == message


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "abscli", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"abs {__version__}\n", "")


def test_the_overview_lists_the_options_that_there_are() -> None:
    from abscli.cli.generate import pages

    listed = {", ".join(option.names): option.help for option in pages()[0].options}
    assert listed == OPTIONS


@given(st.integers(min_value=20, max_value=300))
def test_the_overview_keeps_to_the_width(columns: int) -> None:
    assert max(map(len, overview(max(columns, 40)).splitlines())) <= max(columns, 40)


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"abs {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "no such command 'bogus'"),
        (["topologi", "x"], "did you mean 'topology'?"),
        (["topology"], "missing argument 'JOB'"),
        (["topology", "x", "--nonsense"], "no such option: --nonsense"),
        (["topology", "x", "-o", "xml"], "'xml' is none of table, wide, json, ndjson, dot, mermaid, svg, yaml"),
        (["run", "x"], "missing option '--store'"),
        (["run", "x", "--store", "s", "--interval", "soon"], "'soon' is not a duration"),
        (["run", "x", "--store", "s", "--keep", "0"], "0 is below 1"),
        (["run", "x", "--store", "s", "--keep", "many"], "'many' is not a whole number"),
        (["run", "x", "--store", "s", "--interval", "0s"], "is not greater than zero"),
        (["completion", "csh"], "'csh' is none of bash, zsh, fish"),
        (["run", "x", "--savepoint", "s"], "did you mean --resume --store?"),
        (["run", "x", "--store", "s", "--engine", "inline", "--master", "local[2]"], "the inline engine has no Spark"),
        (["plan-recovery"], "a store (REF) or --topology is needed"),
    ],
)
def test_wrong_usage_is_exit_2_with_a_hint(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("abs: error: ")
    assert message in said.err
    assert "'abs " in said.err.partition("\nhint: ")[2]
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["topology", "--nonsense", "-o", "json"], {}),
        (["topology", "--nonsense", "-ojson"], {}),
        (["-q", "topology", "-qojson", "--nonsense"], {}),
        (["topology", "--output=ndjson", "--nonsense"], {}),
        (["topology", "--nonsense"], {"ABS_OUTPUT": "json"}),
        (["topology", "--nonsense"], {"ABS_TOPOLOGY_OUTPUT": "json", "ABS_OUTPUT": "table"}),
        (["plan-recovery", "--nonsense"], {"ABS_PLAN_RECOVERY_OUTPUT": "json"}),
        (["bogus"], {"ABS_OUTPUT": "json"}),
    ],
)
def test_an_error_is_one_json_object_where_json_was_asked_for(
    arguments: list[str], environment: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main.main(arguments) == 2
    error = told(capsys.readouterr().err)
    assert (error["code"], error["name"]) == (2, "usage")


def test_json_is_not_used_when_it_was_not_asked_for() -> None:
    assert main.wanted_form(["run", "--", "-o", "json"], {}) == "table"
    assert main.wanted_form(["run", "-o", "table"], {"ABS_OUTPUT": "json"}) == "table"
    assert main.wanted_form([], {"ABS_RUN_OUTPUT": "json"}) == "table"


def test_all_errors_of_a_topology_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("version: 1\njob: x\noperators:\n  a: {map: 3, bogus: 1}\n")
    assert main.main(["topology", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:4:" in said
    assert "bogus" in said
    assert main.main(["topology", str(path), "-o", "json"]) == 2
    error = told(capsys.readouterr().err)
    assert error["path"] == str(path)
    assert len(error["errors"]) > 1


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (errors.MissingPackage("x"), 2, "missing-package"),
        (errors.FormatError("x"), 2, "invalid-file"),
        (errors.OtherJob("x"), 2, "other-job"),
        (errors.UnknownTask("x"), 2, "unknown-task"),
        (errors.UnsafePath("x"), 2, "unsafe-path"),
        (errors.Damaged("x"), 3, "damaged"),
        (errors.NoRecovery("x"), 4, "no-recovery"),
        (errors.StalePlan("x"), 5, "stale-plan"),
        (errors.NotFound("x"), 10, "not-found"),
        (errors.StoreInUse("x"), 11, "store-in-use"),
        (errors.UnsupportedVersion("x"), 12, "unsupported-version"),
        (UsageError("x"), 2, "usage"),
        (EngineStopped("x"), 6, "stopped"),
        (JobFailed("x"), 7, "job-failed"),
        (OSError(errno.ENOSPC, "No space left on device"), 6, "stopped"),
        (OSError(errno.EFBIG, "File too large"), 6, "stopped"),
        (OSError(errno.ENAMETOOLONG, "File name too long"), 2, "usage"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), 2, "no-such-file"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("x"), 1, "unexpected"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_has_an_exit_code_and_a_name(error: BaseException, code: int, name: str) -> None:
    assert exits.fault(error) == (code, name)


def test_every_class_of_the_formats_is_in_the_table() -> None:
    listed = {kind for kind, _ in exits.TABLE}
    assert {kind for kind in vars(errors).values() if isinstance(kind, type)} <= listed


def test_every_exit_status_of_a_command_is_in_the_common_table() -> None:
    for name in COMMANDS:
        status = load(name).exit_status  # type: ignore[attr-defined]
        assert set(status) <= set(exits.MEANING)
        assert list(status) == sorted(status)
        assert {0, 1, 2} <= set(status)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `abs topology` raise."""

    def arrange(error: BaseException) -> None:
        def raises(path: str, check: object, *, must_check: bool) -> None:
            raise error

        monkeypatch.setattr("abscli.stores.registry.parse_job", raises)

    return arrange


def test_a_known_error_is_told_with_path_and_hint(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(errors.StalePlan("digest is 12, was 34", path="s/manifest.json", hint="plan again"))
    assert main.main(["topology", "x"]) == 5
    assert capsys.readouterr().err == "abs: error: s/manifest.json: digest is 12, was 34\nhint: plan again\n"


def test_what_a_message_quotes_cannot_move_the_cursor(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(errors.Damaged("names \x1b]0;title\x07\x9b2J\nand more\r", path="a\x1b[31m", hint="look at \x1b[0m"))
    assert main.main(["topology", "x"]) == 3
    assert capsys.readouterr().err == (
        "abs: error: a\\x1b[31m: names \\x1b]0;title\\x07\\x9b2J\nand more\\r\nhint: look at \\x1b[0m\n"
    )


def test_a_missing_permission_says_what_to_do(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(PermissionError(errno.EACCES, "Permission denied", "s/metadata"))
    assert main.main(["topology", "x"]) == 2
    assert capsys.readouterr().err == (
        "abs: error: s/metadata: Permission denied\n"
        "hint: run it as a user with the permission, such as the user of the job\n"
    )


def test_a_bug_is_one_line_and_a_traceback_only_with_vv(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(ZeroDivisionError("division\nby zero"))
    assert main.main(["topology", "x"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("abs: error: unexpected ZeroDivisionError: division by zero\n")
    assert "-vv" in said
    assert "Traceback" not in said
    for arguments in (["-vv", "topology", "x"], ["topology", "x", "-vv"], ["-v", "topology", "-v", "x"]):
        assert main.main(arguments) == 1
        assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_130(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(KeyboardInterrupt())
    assert main.main(["topology", "x"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_errors_are_coloured_only_where_colour_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["bogus"])
    assert "\x1b" not in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    main.main(["bogus"])
    assert "\x1b" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    main.main(["bogus"])
    assert "\x1b" not in capsys.readouterr().err


def test_options_come_from_the_environment_and_the_closer_one_wins(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABS_OUTPUT", "dot")
    assert main.main(["topology", job]) == 0
    assert capsys.readouterr().out.startswith("digraph")
    monkeypatch.setenv("ABS_TOPOLOGY_OUTPUT", "json")
    assert main.main(["topology", job]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "abs.topology"
    assert main.main(["topology", job, "-o", "mermaid"]) == 0
    assert "flowchart" in capsys.readouterr().out


def test_an_option_with_a_dash_has_a_variable_with_underscores(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABS_PLAN_RECOVERY_OUT", str(tmp_path / "plan.json"))
    assert main.main(["plan-recovery", "--topology", job, "--failed", "b/0", "-o", "json"]) == 0
    assert (tmp_path / "plan.json").read_text() == capsys.readouterr().out


def test_a_bad_value_from_the_environment_names_the_variable(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABS_OUTPUT", "xml")
    assert main.main(["topology", job]) == 2
    assert "from ABS_OUTPUT" in capsys.readouterr().err


def test_a_variable_called_abs_version_is_somebody_else_s(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABS_VERSION", "7")
    assert main.main(["topology", job]) == 0
    assert "loops" in capsys.readouterr().out


def test_every_form_of_a_topology_works(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "json", "ndjson", "dot", "mermaid", "svg"):
        assert main.main(["topology", job, "-o", form]) == 0
        shown = capsys.readouterr().out
        assert shown.endswith("\n")
        assert not shown.endswith("\n\n")
    main.main(["topology", job, "-o", "ndjson"])
    header, *items = map(json.loads, capsys.readouterr().out.splitlines())
    assert header["schema"] == "abs.topology"
    assert [item["type"] for item in items] == ["operator"] * 3


def test_a_reader_that_leaves_early_is_no_error(job: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("topology", job, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_finding_survives_a_reader_that_leaves_early() -> None:
    read, write = os.pipe()
    os.close(read)
    code = (
        "from abscli.cli import output, app\n"
        "import typer\n"
        "def shows(*arguments, **options):\n"
        "    output.emit_text('a finding')\n"
        "    return 3\n"
        "app.app = shows"
    )
    try:
        done = process("validate", "x", code=code, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (3, "")


def test_an_output_that_is_full_is_told(job: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = process("topology", job, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 6
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_that_lacks_the_characters_gets_ascii(job: str) -> None:
    done = process("topology", job, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\\u" not in done.stdout


def test_notes_go_to_stderr_and_quiet_silences_them(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan-recovery", "--topology", job, "--failed", "b/0", "--out", str(tmp_path / "plan.json")]
    assert main.main(arguments) == 0
    assert "plan written" in capsys.readouterr().err
    for silent in ([*arguments, "-q"], ["-q", *arguments], [arguments[0], "--quiet", *arguments[1:]]):
        assert main.main(silent) == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert said.out


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress() as show:
        show("epoch 3")
    assert capsys.readouterr().err == ""


def test_json_that_nobody_reads_is_not_indented(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, lines in ((100, 4), (10, 1)):
        monkeypatch.setattr(output, "LARGE", limit)
        output.emit_json({"some": "text", "more": 1})
        said = capsysbinary.readouterr().out
        assert (said.count(b"\n"), json.loads(said)) == (lines, {"some": "text", "more": 1})


def test_json_escapes_what_is_not_unicode(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.emit_json({"path": os.fsdecode(b"caf\xe9"), "name": "café"})
    shown = capsysbinary.readouterr().out
    assert json.loads(shown)["path"] == os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("500ms", 0.5), ("2", 2), ("1.5m", 90), ("1h30m", 5400), ("2d", 172800), ("0", 0), (" 3s ", 3)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1x", "1 s", "-1s", "1s2", "1,5s", "inf", "nan", "1e3", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="duration"):
        duration(text)


def test_an_interval_is_above_zero() -> None:
    with pytest.raises(typer.BadParameter, match="not greater than zero"):
        positive_duration("0ms")
