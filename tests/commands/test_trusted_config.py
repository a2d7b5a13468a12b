"""Configuration that a stranger may have written: which keys count, whose files are read, and in which order."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from abscli.cli.app import load
from abscli.cli.options import ConfigScope
from abscli.cli.overview import COMMANDS
from tests.support.commands import run_command
from tests.support.stores.small import make_store

Capture = pytest.CaptureFixture[str]
NOBODY = 65534
OPTIONS = [(command, name, option) for command in COMMANDS for name, option in load(command).options_by_name().items()]
CHOSEN = [(command, name) for command, name, option in OPTIONS if option.scope is ConfigScope.CHOSEN_FILE]
TYPED = [(command, name) for command, name, option in OPTIONS if option.scope is ConfigScope.NO_FILE]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run: with a store, a configuration directory, and no file yet."""
    (tmp_path / "here").mkdir()
    (tmp_path / "config").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("ABS_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    make_store("snapshots")
    return tmp_path


def kept(capsys: Capture, *words: str) -> list[int]:
    code, out, err = run_command("gc", capsys, "snapshots", "-o", "json", *words)
    assert (code, err) == (0, "")
    result: list[int] = json.loads(out)["kept"]
    return result


def test_every_option_declares_which_files_may_set_it() -> None:
    undeclared = [f"abs {command} --{name}" for command, name, option in OPTIONS if option.scope is None]
    assert not undeclared, "write ANY_FILE, CHOSEN_FILE or NO_FILE (abscli/cli/options.py) into their annotations"


def test_options_that_name_code_hosts_or_files_need_a_chosen_file() -> None:
    """By what their help calls their values: a new option of this kind that is declared ANY_FILE is noticed."""
    suspects = {"JOB", "FILE", "PATH", "DIR", "URL", "HOST", "HOST:PORT", "[HOST:]PORT", "PLAN", "OLD=NEW", "OUTPUT"}
    scopes = {(command, name): option.scope for command, name, option in OPTIONS}
    named = {
        (command, name.removeprefix("--"))
        for command in COMMANDS for param in load(command).params
        if param.param_type_name == "option" and getattr(param, "metavar", None) in suspects
        for name in param.opts if name.startswith("--")
    }  # fmt: skip
    assert len(named) > 60
    assert {key: scopes[key] for key in named} == dict.fromkeys(named, ConfigScope.CHOSEN_FILE)


@pytest.mark.sample(50)
@pytest.mark.parametrize(("command", "key"), CHOSEN)
@pytest.mark.parametrize("table", [True, False])
def test_keys_of_the_current_directory_that_need_trust_are_refused(
    command: str, key: str, table: bool, folder: Path, capsys: Capture
) -> None:
    Path("abs.toml").write_text((f"[{command}]\n" if table else "") + f'{key} = "evil"\n')
    before = sorted(os.listdir())
    if command == "doctor":
        code, out, _ = run_command(command, capsys, "-o", "json")
        message = next(check["message"] for check in json.loads(out)["checks"] if check["name"] == "abs.toml")
        assert code == 3
        assert f"{key} can only be set in a file that you chose" in message
    else:
        code, out, err = run_command(command, capsys, "it's", "--quiet")
        assert (code, out) == (2, "")
        where = f"[{command}] {key}" if table else key
        assert f"abs.toml: {where} can only be set in a file that you chose" in err
        again = f"""abs {command} 'it'"'"'s' --quiet"""
        assert f"`ABS_CONFIG=./abs.toml {again}`" in err
        assert f"`ABS_CONFIG= {again}`" in err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(("command", "key"), TYPED)
def test_confirmations_are_refused_from_every_file(
    command: str, key: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config" / "abs.toml").write_text(f"[{command}]\n{key} = true\n")
    code, _, err = run_command(command, capsys, "snapshots")
    assert code == 2
    assert f"[{command}] {key} is given each time, never as a default" in err


def test_code_is_imported_only_if_the_file_was_chosen(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evil.py").write_text('open("imported", "w").close()\n')
    Path("abs.toml").write_text('[drill]\njob = "evil.py"\nengine = "inline"\n')
    assert run_command("drill", capsys, "snapshots")[0] == 2
    assert not Path("imported").exists()
    monkeypatch.setenv("ABS_CONFIG", "./abs.toml")
    run_command("drill", capsys, "snapshots")
    assert Path("imported").exists()


def test_nobody_is_contacted_whom_a_found_file_names(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        Path("abs.toml").write_text(f'endpoint = "http://127.0.0.1:{server.getsockname()[1]}"\n')
        assert run_command("inspect", capsys, "s3://bucket/store")[0] == 2
        with pytest.raises(BlockingIOError):
            server.accept()


def test_files_are_written_only_where_a_chosen_file_says(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[plan-recovery]\nout = "plan.json"\n'
    Path("abs.toml").write_text(text)
    assert run_command("plan-recovery", capsys, "snapshots")[0] == 2
    assert not Path("plan.json").exists()
    Path("abs.toml").rename(folder / "config" / "abs.toml")
    assert run_command("plan-recovery", capsys, "snapshots")[0] == 0
    assert Path("plan.json").exists()


def test_the_current_directory_takes_precedence_over_the_users_file_key_by_key(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder / "config" / "abs.toml"
    own.write_text("[gc]\nkeep = 1\n")
    assert kept(capsys) == [4, 5]
    Path("abs.toml").write_text("[gc]\nkeep = 2\n")
    assert kept(capsys) == [2, 4, 5]
    Path("abs.toml").write_text("quiet = true\n")
    assert kept(capsys) == [4, 5]
    Path("alone.toml").write_text("quiet = true\n")
    monkeypatch.setenv("ABS_CONFIG", "alone.toml")
    assert kept(capsys) == [1, 2, 4, 5]
    monkeypatch.setenv("ABS_CONFIG", "")
    assert kept(capsys) == [1, 2, 4, 5]
    monkeypatch.delenv("ABS_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".config").mkdir()
    own.rename(folder / ".config" / "abs.toml")
    assert kept(capsys) == [4, 5]


def test_a_bad_value_is_reported_with_the_file_that_it_is_from(folder: Path, capsys: Capture) -> None:
    (folder / "config" / "abs.toml").write_text("[gc]\nkeep = 0\n")
    Path("abs.toml").write_text("quiet = true\n")
    code, _, err = run_command("gc", capsys, "snapshots")
    assert code == 2
    assert f"(from {folder / 'config' / 'abs.toml'})" in err


def test_the_users_file_is_trusted_in_its_own_directory(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config" / "abs.toml").write_text('region = "eu-north-1"\n')
    monkeypatch.chdir(folder / "config")
    assert run_command("inspect", capsys, folder / "here" / "snapshots")[0] == 0


@pytest.mark.parametrize(("mode", "who"), [(0o664, "its group"), (0o646, "everybody"), (0o666, "everybody")])
def test_files_that_others_can_write_are_ignored_with_a_warning(
    mode: int, who: str, folder: Path, capsys: Capture
) -> None:
    for path in (Path("abs.toml"), folder / "config" / "abs.toml"):
        path.write_text("[gc]\nkeep = 1\n")
        path.chmod(mode)
        code, out, err = run_command("gc", capsys, "snapshots", "-o", "json")
        assert (code, json.loads(out)["kept"]) == (0, [1, 2, 4, 5])
        reason = f"{path} is ignored: it is writable by {who}; run `chmod go-w {path}`"
        assert err == f"abs: warning: {reason}\n"
        path.chmod(0o644)
        assert kept(capsys) == [4, 5]
        path.unlink()


@as_root
def test_files_of_another_user_are_ignored_with_a_warning(folder: Path, capsys: Capture) -> None:
    Path("abs.toml").write_text('[drill]\njob = "evil.py"\n[gc]\nkeep = 1\n')
    os.chown("abs.toml", NOBODY, NOBODY)
    code, out, err = run_command("gc", capsys, "snapshots", "-o", "json")
    assert (code, json.loads(out)["kept"]) == (0, [1, 2, 4, 5])
    assert err.startswith("abs: warning: abs.toml is ignored: it belongs to uid 65534, not to uid 0")
    assert err.count("\n") == 1


@as_root
def test_a_link_is_as_safe_as_the_file_that_it_leads_to(folder: Path, capsys: Capture) -> None:
    (folder / "target").write_text("[gc]\nkeep = 1\n")
    Path("abs.toml").symlink_to(folder / "target")
    os.chown("abs.toml", NOBODY, NOBODY, follow_symlinks=False)
    assert kept(capsys) == [4, 5]
    os.chown(folder / "target", NOBODY, NOBODY)
    assert "is ignored" in run_command("gc", capsys, "snapshots")[2]


@as_root
def test_the_check_is_made_of_the_file_that_is_read(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user who exchanges the file when its path has been looked at changes nothing."""
    from abscli.cli import defaults

    Path("evil.toml").write_text("[gc]\nkeep = 1\n")
    os.chown("evil.toml", NOBODY, NOBODY)
    Path("abs.toml").write_text("[gc]\nkeep = 2\n")
    real = os.open

    def exchanged(path: str, flags: int, *rest: int, **more: int) -> int:
        descriptor = real(path, flags, *rest, **more)
        if path == defaults.FILE:
            with contextlib.suppress(FileNotFoundError):
                os.replace("evil.toml", "abs.toml")
        return descriptor

    monkeypatch.setattr(os, "open", exchanged)
    assert kept(capsys) == [2, 4, 5]
    assert "is ignored" in run_command("gc", capsys, "snapshots")[2]


def test_an_unsafe_file_that_abs_config_names_is_an_error(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ignored, it would let a command run with other settings than those that were asked for."""
    Path("abs.toml").write_text("[gc]\nkeep = 1\n")
    Path("abs.toml").chmod(0o666)
    monkeypatch.setenv("ABS_CONFIG", "abs.toml")
    code, out, err = run_command("gc", capsys, "snapshots")
    assert (code, out) == (2, "")
    assert "it is writable by everybody" in err
    assert "chmod go-w abs.toml" in err
    monkeypatch.setenv("ABS_CONFIG", os.devnull)
    assert kept(capsys) == [1, 2, 4, 5]


def test_a_pipe_and_a_folder_called_abs_toml_are_no_files(folder: Path, capsys: Capture) -> None:
    os.mkfifo("abs.toml")
    (folder / "config" / "abs.toml").mkdir()
    assert kept(capsys) == [1, 2, 4, 5]


def test_the_warning_is_a_line_of_json_where_the_log_is_one(folder: Path, capsys: Capture) -> None:
    Path("abs.toml").write_text("quiet = true\n")
    Path("abs.toml").chmod(0o666)
    _, _, err = run_command("drill", capsys, "snapshots", "--log-format", "json")
    assert json.loads(err.splitlines()[0])["level"] == "warning"


def test_doctor_warns_of_ignored_files(folder: Path, capsys: Capture) -> None:
    Path("abs.toml").write_text("quiet = true\n")
    Path("abs.toml").chmod(0o666)
    _, out, _ = run_command("doctor", capsys, "-o", "json")
    check = next(check for check in json.loads(out)["checks"] if check["name"] == "abs.toml")
    assert check["verdict"] == "warning"
    assert "it is writable by everybody" in check["message"]


def test_help_lists_the_options_that_need_a_chosen_file(capsys: Capture) -> None:
    text = " ".join(run_command("drill", capsys, "--help")[1].split())
    options = "--job, --master, --insecure, --deep, --endpoint, --region"
    assert f"Not read from abs.toml in the current directory: {options}." in text
