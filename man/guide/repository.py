"""The Markdown of the repository among the pages of the site, under its own paths: links between them hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "pages"
TO_ROOT = os.path.relpath(ROOT, PAGES)
TO_PAGES = f"{PAGES.relative_to(ROOT)}/"
MARKDOWN = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "abscli/**/*.md", "formats/**/*.md")
    for path in ROOT.glob(pattern)
)
OVERVIEW = "overview.md"
"""Where the first of them is: as README.md it would be the site's first page."""
_LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:|#|mailto:)[^)#\s]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the Markdown outside of the folder of pages."""
    for name in MARKDOWN:
        place = OVERVIEW if name == "README.md" else name
        files.append(File.generated(config, place, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to other files, such as code, become their text; pages of the guide are at the top of the site."""
    name = "README.md" if page.file.src_uri == OVERVIEW else page.file.src_uri
    if name not in MARKDOWN:
        return markdown.replace(f"]({TO_ROOT}/", "](").replace(f"](../{TO_ROOT}/", "](../")
    folder = (ROOT / name).parent

    def link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target == ROOT / "README.md":
            return match[0].replace("README.md", OVERVIEW)
        if target.is_relative_to(PAGES):
            return match[0].replace(match[2], os.path.relpath(target.relative_to(PAGES), folder.relative_to(ROOT)))
        is_page = target.suffix == ".md" and target.is_file()
        return match[0] if is_page else match[1]

    return _LINK.sub(link, markdown.replace(f'="{TO_PAGES}', '="'))
