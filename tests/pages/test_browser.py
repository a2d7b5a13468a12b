"""A report in a real browser: nothing on the console, no request, tables that are filtered and sorted, both looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from abscli.pages.html import html_of
from abscli.pages.store_report import store_report
from formats.statistics import Large
from tests.pages.test_page import HOSTILE, replace_text
from tests.support.browser import Page
from tests.support.pages import gathered

pytestmark = pytest.mark.usefixtures("chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "report.html"
    file.write_bytes(html_of(store_report(gathered(200, 12))))
    return file


@pytest.fixture
def page(report: Path, tmp_path: Path) -> Iterator[Page]:
    with Page(tmp_path / "profile") as page:
        page.open(report)
        yield page


def rows(page: Page, table: str) -> list[str]:
    """The first cells of the rows that are seen."""
    shown: list[str] = page.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => row.offsetParent !== null)"
        ".map((row) => row.cells[0].textContent)"
    )
    return shown


def type_words(page: Page, words: str) -> None:
    """Fills the filter of the epochs."""
    page.evaluate(
        "{ const box = document.querySelector('[data-filter=epochs-table]');"
        f"box.value = '{words}'; box.dispatchEvent(new Event('input')) }}"
    )


def test_nothing_is_on_the_console_and_the_file_is_all_that_is_asked_for(page: Page, report: Path) -> None:
    assert page.messages == []
    assert page.requests == [report.resolve().as_uri()]


def test_a_table_is_filtered_by_words_and_by_what_is_wrong(page: Page) -> None:
    assert len(rows(page, "epochs-table")) == 200
    type_words(page, "damaged")
    assert rows(page, "epochs-table") == ["194", "97"]
    assert page.evaluate("document.querySelector('[data-count=epochs-table]').textContent") == "2 of 200"
    type_words(page, "damaged no-such-word")
    assert rows(page, "epochs-table") == []
    type_words(page, "")
    page.evaluate("document.querySelector('[data-bad=epochs-table]').click()")
    assert rows(page, "epochs-table") == ["194", "97"]
    # A link to an epoch that is filtered away shows it nevertheless.
    page.evaluate(
        "new Promise((done) => { addEventListener('hashchange', () => setTimeout(done)); location.hash = '#epoch-5' })"
    )
    assert len(rows(page, "epochs-table")) == 200
    assert page.messages == []


def test_a_table_is_sorted_by_a_column_both_ways(page: Page) -> None:
    took = "[...document.querySelectorAll('#epochs-table th')].find((head) => head.textContent === 'Took').click()"
    page.evaluate(took)
    assert rows(page, "epochs-table")[0] == "200"  # 0.20 s, as of 50, and newer
    page.evaluate(took)
    assert rows(page, "epochs-table")[0] == "199"  # 0.69 s
    assert page.evaluate("document.querySelectorAll('#epochs-table th[aria-sort=descending]').length") == 1
    assert page.messages == []


@pytest.mark.parametrize(("dark", "colour"), [(False, "rgb(255, 255, 255)"), (True, "rgb(18, 22, 27)")])
def test_it_has_a_look_by_day_and_by_night(report: Path, tmp_path: Path, dark: bool, colour: str) -> None:
    with Page(tmp_path / "profile", dark=dark) as page:
        page.open(report)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
        assert page.messages == []


def test_without_scripts_all_of_it_can_be_read(report: Path, tmp_path: Path) -> None:
    with Page(tmp_path / "profile", scripts=False) as page:
        page.open(report, "#epoch-150")
        assert len(rows(page, "epochs-table")) == 200
        hidden = "[...document.querySelectorAll('button, .tools')].every((one) => one.offsetParent === null)"
        assert page.evaluate(hidden)
        assert page.evaluate("document.getElementById('epoch-150').getBoundingClientRect().top < innerHeight")


def test_names_that_would_do_harm_do_none(tmp_path: Path) -> None:
    name = "".join(HOSTILE)
    file = tmp_path / "report.html"
    facts = gathered(100, 5, names=(f"a{name}", f"b{name}", f"c{name}"), job=name, path=name, message=name)
    file.write_bytes(html_of(replace_text(store_report(facts), name)))
    with Page(tmp_path / "profile") as page:
        page.open(file)
        assert page.messages == []
        assert page.requests == [file.resolve().as_uri()]
        assert page.evaluate("JSON.parse(document.getElementById('facts').textContent).job.includes('<script>')")
        assert page.evaluate("document.images.length") == 0


def test_a_table_with_tags_fits_a_page_of_1280_pixels(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    facts = gathered(40, 12)
    file.write_bytes(html_of(store_report(replace(facts, tags={40: ["nightly-2026-01-02", "before-upgrade"]}))))
    with Page(tmp_path / "profile", width=1280) as page:
        page.open(file)
        table = "document.getElementById('epochs-table').parentElement"
        assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")


def test_on_a_phone_a_wide_table_keeps_its_first_column_and_shows_that_it_scrolls(
    report: Path, tmp_path: Path
) -> None:
    with Page(tmp_path / "profile", width=390) as page:
        page.open(report)
        assert page.evaluate("document.documentElement.scrollWidth <= 390")
        page.evaluate("document.getElementById('epochs-table').parentElement.scrollLeft = 200")
        cell = "document.querySelector('#epochs-table tbody tr').cells"
        assert page.evaluate(f"{cell}[0].getBoundingClientRect().left >= 0")
        assert page.evaluate(f"{cell}[1].getBoundingClientRect().left < 0")
        shadows = page.evaluate("getComputedStyle(document.querySelector('.scroll')).backgroundAttachment")
        assert shadows == "local, local, scroll, scroll"


def test_a_page_that_is_read_later_shows_the_age_of_that_moment(report: Path, page: Page) -> None:
    shown = page.evaluate("document.getElementById('age').textContent")
    assert "11 h 56 min old" in shown
    assert ", now " in shown, "the report is of January 2026"
    assert "where you read it" in page.evaluate("document.querySelector('time').title")


def test_long_names_widen_no_page(tmp_path: Path) -> None:
    name = "x" * 300
    file = tmp_path / "report.html"
    facts = gathered(100, 5, names=(f"a{name}", f"b{name}", f"c{name}"), job=name, path=name, message=name)
    assert facts.statistics is not None
    key = (Large(300, name, 1),)
    facts = replace(facts, statistics=[changed(one, largest_keys=key) for one in facts.statistics])
    file.write_bytes(html_of(replace_text(store_report(facts), name)))
    with Page(tmp_path / "profile") as page:
        page.open(file)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        wide = page.evaluate("[...document.querySelectorAll('#states-table td')].map((cell) => cell.offsetWidth)")
        assert max(wide) < 800
        assert "300\u00a0B" in page.evaluate("document.getElementById('states-table').textContent")
