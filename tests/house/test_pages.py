"""The pages for those who carry this on: what they draw and name is what is there."""

from __future__ import annotations

import pytest

from tests.support.architecture import PAGE, drawn, named_files, packages
from tests.support.imports import ROOT
from tests.support.sim.loss_pictures import pictures


def test_the_picture_of_the_packages_is_that_of_the_imports() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page), "`make docs` draws it anew"


def test_the_page_names_every_package() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for package in packages():
        assert f"`{package.replace('.', '/')}/`" in page, f"the page says nothing of {package}"


def test_the_pictures_of_a_loss_are_what_the_simulator_does() -> None:
    for path, text in pictures().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: `make docs` draws it anew"


@pytest.mark.parametrize("page", [PAGE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: object) -> None:
    assert isinstance(page, type(PAGE))
    paths = named_files(page.read_text(encoding="utf-8"))
    assert paths
    assert not {path for path in paths if not (ROOT / path).exists()}
