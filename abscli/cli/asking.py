"""Asking Spark itself about a Spark checkpoint, where a command was told to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer


@contextlib.contextmanager
def spark_of(format: str, option: str, master: str) -> Iterator[Any]:
    """A Spark context for `option`, stopped in the end; a usage error for a store that is not Spark's."""
    if format != "spark":
        raise typer.BadParameter(f"only Spark's checkpoints can be asked of Spark; this is one of {format}'s",
                                 param_hint=f"'{option}'")  # fmt: skip
    from abscli.cli.output import progress
    from abscli.engine.spark import start_context

    with progress() as show:
        show("starting Spark")
        context = start_context(master)
    try:
        yield context
    finally:
        context.stop()
