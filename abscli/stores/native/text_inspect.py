"""What `abs inspect` shows of our own store: the page that all have, and which files were not looked for."""

from __future__ import annotations

import shlex

from abscli.text import inspect
from abscli.text.columns import wrapped
from abscli.text.inspect_page import StorePage
from formats.view import Status


def store_text(page: StorePage, *, width: int = 80, ascii: bool = False) -> str:
    """The list of epochs."""
    return inspect.store_text(page, heading="Store", width=width, ascii=ascii, remarks=_unseen(page, width))


def _unseen(page: StorePage, width: int) -> list[str]:
    unseen = sum(epoch.present is None and epoch.status is Status.COMPLETE for epoch in page.epochs)
    if not unseen:
        return []
    files = f"The files of {unseen} {'epoch' if unseen == 1 else 'epochs'} were not looked for, there are so many; "
    return wrapped(f"{files}`abs validate {shlex.quote(page.path)} --quick` does.", width)
