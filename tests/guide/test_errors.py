"""The guide's index of error texts: long enough, its commands can be typed, and its findings exist."""

from __future__ import annotations

import re

from abscli.report.findings import Code
from tests.support.guide.blocks import PAGES

SECTIONS = (PAGES / "runbooks" / "errors.md").read_text(encoding="utf-8").split("\n## ")[1:]
ROWS = {
    section.partition("\n")[0]: [line.strip("| ").split(" | ") for line in section.splitlines()[4:] if line[:1] == "|"]
    for section in SECTIONS
}
"""By section, the cells of its rows."""


def test_the_index_has_messages_of_flink_spark_and_abs() -> None:
    assert list(ROWS) == ["Flink", "Spark", "`abs`: findings of validate", "`abs`: errors"]
    assert sum(map(len, ROWS.values())) >= 25
    assert all(len(rows) >= 8 for rows in ROWS.values())


def test_every_message_has_a_cause_a_command_and_a_page() -> None:
    for row in (row for rows in ROWS.values() for row in rows):
        assert len(row) == 4, row
        assert all(row), row


def test_the_findings_exist() -> None:
    named = {word for row in ROWS["`abs`: findings of validate"] for word in re.findall(r"`([a-z-]+)`", row[0])}
    assert named <= {str(code) for code in Code}
