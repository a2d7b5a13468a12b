"""The pages for those who carry this on: what they draw and name is what is there."""

from __future__ import annotations

import pytest

from tests.support.architecture import PAGE, drawn, named_files, packages
from tests.support.imports import ROOT


def test_the_picture_of_the_packages_is_that_of_the_imports() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page), "`make docs` draws it anew"


def test_the_page_names_every_package() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for package in packages():
        assert f"`{package.replace('.', '/')}/`" in page, f"the page says nothing of {package}"


@pytest.mark.parametrize("page", [PAGE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: object) -> None:
    assert isinstance(page, type(PAGE))
    paths = named_files(page.read_text(encoding="utf-8"))
    assert paths
    assert not {path for path in paths if not (ROOT / path).exists()}
