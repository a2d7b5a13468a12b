"""What `abs inspect` shows of our own store: the pages that all have, which files were not looked for, and what a job
was that made an epoch."""

from __future__ import annotations

import shlex

from abscli.text import inspect, inspect_epoch
from abscli.text.columns import wrapped
from abscli.text.inspect_page import EpochPage, StorePage
from abscli.text.recoveries import again_text, recovered_text
from formats.view import Status
from formats.watermark import lowest, watermark_text

SHOWN = 5
"""Live recoveries of which the page tells."""


def store_text(page: StorePage, *, width: int = 80, ascii: bool = False) -> str:
    """The list of epochs."""
    remarks = [*_tags(page, width), *_recoveries(page, width), *_unseen(page, width)]
    return inspect.store_text(page, heading="Store", width=width, ascii=ascii, remarks=remarks)


def _tags(page: StorePage, width: int) -> list[str]:
    """Names of epochs."""
    tags = (page.raw or {}).get("tags", [])
    names = [f"{tag['name']} (epoch {tag['epoch']})" for tag in tags]
    return ["", *wrapped(", ".join(names), width, "  ", "Tags: ")] if names else []


def _recoveries(page: StorePage, width: int) -> list[str]:
    """What restarted while an attempt ran, the newest few."""
    recoveries = recovery_lines(page)
    if not recoveries:
        return []
    lines = ["", "Recovered while running:"]
    if len(recoveries) > SHOWN:
        lines.append(f"  ({len(recoveries) - SHOWN} earlier ones: -o json)")
    for line in recoveries[-SHOWN:]:
        lines += wrapped(line, width, "    ", "  ")
    return lines


def recovery_lines(page: StorePage) -> list[str]:
    """What restarted while attempts ran, a line each, the newest last."""
    lines = []
    for facts in (page.raw or {}).get("recoveries", []):
        text = f"{facts['lost']} attempt {facts['attempt']}: {facts['cause']}; " + recovered_text(
            facts["restart"], facts["untouched"], facts["epoch"], facts["seconds"], facts["replayed"]
        )
        again = facts.get("deterministic_replay")
        lines.append(text if again is None else text + again_text(**again))
    return lines


def epoch_text(page: EpochPage, *, width: int = 80, ascii: bool = False) -> str:
    """One epoch; below it what became of operators, and which code made it."""
    text = inspect_epoch.epoch_text(page, width=width, ascii=ascii, own=[])
    facts = page.raw or {}
    lines = _watermarks(page, width) + _skipped(page, width)
    if changes := [f"{before} became {after}" for before, after in facts.get("moved", {}).items()] + [
        f"{operator} was removed" for operator in facts.get("removed", ())
    ]:
        lines += wrapped("; ".join(changes), width, "  ", "Since its parent: ")
    if code := facts.get("code"):
        files = [f"{path} {sha256[:12]}…" for path, sha256 in code.items()]
        lines += wrapped(", ".join(files), width, "  ", "Code that made it: ")
    return text if page.narrow or not lines else text + "\n" + "\n".join(lines) + "\n"


def _watermarks(page: EpochPage, width: int) -> list[str]:
    """How far each operator has come in event time, where one has."""
    come = {op.id: watermark_text(lowest(task.watermark for task in op.tasks)) for op in page.detail.operators}
    texts = [f"{operator} {text}" for operator, text in come.items() if text is not None]
    return wrapped(", ".join(texts), width, "  ", "Watermarks: ") if texts else []


def _skipped(page: EpochPage, width: int) -> list[str]:
    """How many records each operator has left out, where one has."""
    counts = {op.id: sum(task.skipped or 0 for task in op.tasks) for op in page.detail.operators}
    texts = [f"{operator} {count:,}" for operator, count in counts.items() if count]
    return wrapped(", ".join(texts), width, "  ", "Records skipped since the job began: ") if texts else []


def _unseen(page: StorePage, width: int) -> list[str]:
    unseen = sum(epoch.present is None and epoch.status is Status.COMPLETE for epoch in page.epochs)
    if not unseen:
        return []
    files = f"The files of {unseen} {'epoch' if unseen == 1 else 'epochs'} were not looked for, there are so many; "
    return wrapped(f"{files}`abs validate {shlex.quote(page.path)} --quick` does.", width)
