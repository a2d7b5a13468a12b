"""Writes completions/ and man/ from the app, and the protocol's page: `python -m abscli.cli.generate [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from abscli import __version__
from abscli.cli import completion, exits
from abscli.cli.app import GUIDE_PAGES, AbsCommand
from abscli.cli.manpage import manpage
from abscli.cli.options import CHOSEN_FILE, COMPLETES
from abscli.cli.overview import ABOUT, COMMANDS
from abscli.draw.transitions import protocol_page
from abscli.text.pages import Argument, Option, Page

PAGES_DATE = "2026-11-28"
"""Date of the man pages while the version is unreleased. Fixed, so that the pages are reproducible."""

_ROOT_DESCRIPTION = (
    "abs inspects, validates and recovers the checkpoints of Flink and Spark without a JVM. It also runs dataflow "
    "jobs, cycles included, with exactly-once snapshots by asynchronous barrier snapshotting, on Spark or in one "
    "process.",
    "A snapshot is called an epoch. A checkpoint store has the epochs of a job: a directory of plain files, or a "
    "prefix in a bucket. A reference REF is PATH@7, PATH@latest (the newest complete epoch), PATH@TAG, or PATH: the "
    "whole store, or its newest complete epoch for commands that need one epoch.",
    "Results are printed to stdout; progress, messages and errors to stderr.",
)
_ROOT_EXAMPLES = (
    ("abs validate checkpoints/0d9f...", "Checks all checkpoints of a Flink job."),
    ("abs run job.yaml --store snapshots", "Runs a job and takes snapshots of it."),
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
            guide=f"{GUIDE_PAGES}/index.md",
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
            see_also=command.see_also,
            guide=f"{GUIDE_PAGES}/{command.guide}",
        )


def _options(command: Any, context: Any) -> Iterator[Option]:
    by_name = command.options_by_name() if isinstance(command, AbsCommand) else {}
    chosen = {option.parameter for option in by_name.values() if option.scope is CHOSEN_FILE}
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
            needs_chosen_file=param.name in chosen,
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
    """Return the date that CHANGELOG gives this version, or PAGES_DATE while it is unreleased."""
    path = _root() / "CHANGELOG.md"
    log = path.read_text(encoding="utf-8") if path.exists() else ""
    heading = re.search(rf"^##\s*\[?{re.escape(__version__)}\b.*?(\d{{4}}-\d\d-\d\d)", log, re.MULTILINE)
    return heading[1] if heading else PAGES_DATE


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
