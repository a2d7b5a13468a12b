"""The guide as a site: it is built whole, and asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.guide.blocks import PAGES

FETCHED = re.compile(r'(?:src=|<link[^>]+href=|url\()["\']?(?:https?:)?//[^"\')>\s]+')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder. A link to a missing page or heading ends the build (with --quiet it would not)."""
    folder = tmp_path_factory.mktemp("site")
    config = PAGES.parent / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    done = subprocess.run(
        command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_pages_and_the_repository_s_own_are_there(site: Path) -> None:
    runbook, own = "runbooks/damaged-epoch", ["abscli/protocol/index", "formats/native-store"]
    names = ["index", "tutorial", "overview", "reference/index", runbook, *own]
    for name in names:
        assert (site / f"{name}.html").is_file(), name
    overview = (site / "overview.html").read_text(encoding="utf-8")
    assert "Your Flink checkpoint" in overview
    assert 'src="images/report-light.png"' in overview
    assert (site / "images" / "report-light.png").is_file()


def test_no_page_takes_anything_from_another_place(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not FETCHED.findall(page.read_text(encoding="utf-8")), page.name
