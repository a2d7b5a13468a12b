"""The page of the guide for each finding: every finding has one, and file, title and section exist."""

from __future__ import annotations

import re

import pytest

from abscli.report.findings import Code
from abscli.report.runbooks import BY_SYSTEM, RUNBOOKS, Runbook, runbook_for
from abscli.stores.registry import SYSTEMS
from tests.support.imports import ROOT

ALL = {runbook_for(code, system.name) for code in Code for system in SYSTEMS}


def headings(page: Runbook) -> dict[str, str]:
    """The anchors of a page, and their headings; the page itself has the anchor of its first."""
    lines = (ROOT / page.page).read_text(encoding="utf-8").splitlines()
    titles = [line.lstrip("#").strip() for line in lines if re.match(r"#+ ", line)]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()): title for title in titles}


@pytest.mark.parametrize("code", Code)
def test_every_finding_has_a_runbook(code: Code) -> None:
    assert code in RUNBOOKS
    for system in SYSTEMS:
        assert runbook_for(code, system.name).title


def test_systems_with_runbooks_of_their_own_exist() -> None:
    assert set(BY_SYSTEM) <= {system.name for system in SYSTEMS}


@pytest.mark.parametrize("page", sorted(ALL, key=lambda page: page.location), ids=lambda page: page.location)
def test_a_runbook_names_a_page_and_a_section_of_the_guide(page: Runbook) -> None:
    there = headings(page)
    assert page.title == (next(iter(there.values())) if page.anchor is None else there[page.anchor])
