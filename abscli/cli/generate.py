"""Writes completions/ and man/ from the app, and the protocol's page: `python -m abscli.cli.generate [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from abscli import __version__
from abscli.cli import completion, exits
from abscli.cli.manpage import manpage
from abscli.cli.options import COMPLETES
from abscli.cli.overview import ABOUT, COMMANDS
from abscli.draw.transitions import protocol_page
from abscli.text.pages import Argument, Option, Page

_ROOT_DESCRIPTION = (
    "abs takes, inspects, checks and recovers snapshots of dataflow jobs by asynchronous barrier snapshotting. Jobs "
    "and recovery jobs run on Spark, or in one process; a job's graph may have cycles.",
    "A snapshot is called an epoch, and the epochs of a job are kept in a checkpoint store: a directory of plain "
    "files. A reference REF is PATH@7, PATH@latest (the newest complete epoch), or PATH alone: the whole store, or "
    "its newest complete epoch where one epoch is meant.",
    "Results go to stdout; progress, notes and errors to stderr.",
)
_ROOT_EXAMPLES = (
    ("abs demo", "Two jobs, run, killed and brought back."),
    ("abs run job.yaml --store snapshots", "Runs a job and takes snapshots."),
    ("abs validate snapshots@latest", "Checks the newest complete epoch."),
    ("abs plan-recovery snapshots --out plan.json", "Plans the way back."),
    ("abs restore plan.json --job job.yaml", "Goes it."),
)


def pages() -> list[Page]:
    """All commands as data, `abs` itself first."""
    import typer

    from abscli.cli.app import app

    root: Any = typer.main.get_command(app)
    with typer.Context(root, info_name="abs", **root.context_settings) as context:
        first = Page(
            name="",
            summary=ABOUT,
            description=_ROOT_DESCRIPTION,
            options=tuple(_options(root, context)),
            examples=_ROOT_EXAMPLES,
            exit_status=tuple(exits.MEANING.items()),
        )
        return [first, *(_page(root.get_command(context, name), context) for name in root.list_commands(context))]


def files() -> dict[str, str]:
    """Path below the project's root -> text, for every generated file."""
    everything = pages()
    date = _release_date()
    texts = {
        "completions/abs.bash": completion.bash(everything),
        "completions/_abs": completion.zsh(everything),
        "completions/abs.fish": completion.fish(everything),
    }
    for page in everything:
        texts[f"man/{page.title}.1"] = manpage(page, everything, version=__version__, date=date)
    texts["abscli/protocol/README.md"] = protocol_page()
    return texts


def main(argv: list[str]) -> int:
    """Writes the files, and removes pages of commands that are gone; with --check only compares. 1: they differ."""
    root = _root()
    texts = files()
    stale = [path for path in sorted(root.glob("man/abs*.1")) if f"man/{path.name}" not in texts]
    different = [name for name, text in texts.items() if not _holds(root / name, text)]
    if "--check" in argv:
        for name in [*different, *(f"man/{path.name}" for path in stale)]:
            sys.stderr.write(f"{name} is not what the app says; run 'make docs'\n")
        return 1 if different or stale else 0
    for path in stale:
        path.unlink()
    for name in different:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name], encoding="utf-8")
    return 0


def _page(command: Any, parent: Any) -> Page:
    import typer

    with typer.Context(command, info_name=command.name, parent=parent, **command.context_settings) as context:
        paragraphs = [" ".join(text.split()) for text in re.split(r"\n\s*\n", command.help or "")]
        return Page(
            name=command.name,
            summary=paragraphs[0],
            description=tuple(paragraphs[1:] or paragraphs),
            options=tuple(_options(command, context)),
            arguments=tuple(_arguments(command)),
            examples=command.examples,
            exit_status=tuple(command.exit_status.items()),
        )


def _options(command: Any, context: Any) -> Iterator[Option]:
    for param in command.get_params(context):
        if param.param_type_name != "option" or param.hidden:
            continue
        takes_value = not (param.is_flag or param.count)
        metavar = (param.metavar or param.name.upper()) if takes_value else None
        yield Option(
            names=tuple(sorted(param.opts, key=len)),
            help=" ".join((param.help or "").split()),
            metavar=metavar,
            choices=_choices(param),
            default=_default(param) if takes_value else None,
            repeatable=bool(param.multiple or param.count),
            required=param.required,
            completes=_completes(param, metavar, command),
            environment=_variables(param, context),
        )


def _arguments(command: Any) -> Iterator[Argument]:
    for param in command.params:
        if param.param_type_name == "argument":
            yield Argument(
                metavar=param.metavar,
                help=" ".join((param.help or "").split()),
                required=param.required,
                choices=_choices(param),
                completes=_completes(param, param.metavar, command),
            )


def _choices(param: Any) -> tuple[str, ...]:
    return tuple(COMMANDS) if param.metavar == "COMMAND" else tuple(getattr(param.type, "choices", ()))


def _completes(param: Any, metavar: str | None, command: Any) -> str:
    if _choices(param):
        return "choice"
    return COMPLETES.get(f"{command.name} {metavar}") or COMPLETES.get(metavar or "", "")


def _default(param: Any) -> str | None:
    if param.default is None or param.show_default is False:
        return None
    return str(getattr(param.default, "value", param.default))


def _variables(param: Any, context: Any) -> tuple[str, ...]:
    if param.name == "help" or not param.allow_from_autoenv:
        return ()
    given = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    own = f"{context.auto_envvar_prefix}_{param.name.upper()}"
    return tuple(dict.fromkeys([*given, own]))


def _release_date() -> str:
    """The date that CHANGELOG gives this version; `` while it is unreleased."""
    path = _root() / "CHANGELOG.md"
    log = path.read_text(encoding="utf-8") if path.exists() else ""
    heading = re.search(rf"^##\s*\[?{re.escape(__version__)}\b.*?(\d{{4}}-\d\d-\d\d)", log, re.MULTILINE)
    return heading[1] if heading else ""


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
