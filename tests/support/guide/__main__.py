"""Runs the commands of pages of the guide, and puts what they print there: python -m tests.support.guide PAGE...

What a page shows in part, with `...`, stays; what is printed instead goes to stderr.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.guide.blocks import ANY, PAGES, File, agree, blocks, run
from tests.support.guide.checkpoints import prepare


def renew(page: Path) -> None:
    """Write what its commands print now, but for those that the page shows in part."""
    lines = page.read_text(encoding="utf-8").splitlines()
    shift = 0
    with tempfile.TemporaryDirectory(prefix="abs-guide-") as folder:
        prepare(str(page.resolve().relative_to(PAGES)), Path(folder))
        for block in list(blocks(page)):
            if isinstance(block, File):
                path = Path(folder, block.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                continue
            printed = run(block, Path(folder))
            if agree(block.printed, printed):
                continue
            if ANY in block.printed:
                sys.stderr.write(f"{page}:{block.line}: {block.text}\nprints\n" + "\n".join(printed) + "\n")
                continue
            first = block.line + block.text.count("\n") + shift
            lines[first : first + len(block.printed)] = printed
            shift += len(printed) - len(block.printed)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


for name in sys.argv[1:]:
    renew(Path(name))
