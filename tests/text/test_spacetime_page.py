"""A run as a page: it asks for nothing, its own script and styles alone may run, and it tells each task's state."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given

from abscli.draw.spacetime_html import spacetime_html
from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment
from abscli.sim.states import AGAIN, LOST, RUNS, states
from tests.support.browser import browser
from tests.support.sim.loss_pictures import loss
from tests.text.test_spacetime import diagrams

BAD = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_page_allows_its_own_script_and_styles_and_nothing_else() -> None:
    page = spacetime_html(loss(local=True))
    policy = re.search('Content-Security-Policy content="([^"]*)"', page)
    assert policy is not None
    allowed = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["style-src"].split() == [_digest(text) for text in re.findall("(?s)<style>(.*?)</style>", page)]
    assert allowed["script-src"].split() == [_digest(text) for text in re.findall("(?s)<script>(.*?)</script>", page)]
    assert not re.search(r"""(?:src|href)=|url\(|\bstyle=|@import""", page)
    assert not [place for place in re.findall(r"https?://[^\s\"'<]+", page) if place != "http://www.w3.org/2000/svg"]


def test_names_stay_text_in_the_page() -> None:
    message = Message(BAD, "b", 1, 2, BAD, 1)
    page = spacetime_html(Diagram(BAD, (BAD, "b"), (Moment(1, BAD, BAD, "copy", 1),), (message,), BAD))
    assert page.count("<script") == 2
    assert "<img" not in page
    assert "\x1b" not in page


def test_a_lost_task_takes_its_steps_again_and_goes_on() -> None:
    run = loss(local=True)
    conditions = {task: [now.condition for now in changes.values()] for task, changes in states(run).items()}
    for task in ("rows/0", "pages/1", "printed/0"):
        seen = [now for now, after in zip(conditions[task], [*conditions[task][1:], None], strict=True) if now != after]
        assert seen == [RUNS, LOST, AGAIN, RUNS]
    for task in (COORDINATOR, "rows/1", "pages/0", "printed/1"):
        assert set(conditions[task]) == {RUNS}


@given(diagrams())
def test_every_record_is_counted_where_it_leaves_and_where_it_arrives(diagram: Diagram) -> None:
    last = {task: list(changes.values())[-1] for task, changes in states(diagram).items() if changes}
    records = [message for message in diagram.messages if not message.barrier]
    sent = Counter(message.sender for message in records)
    arrived = Counter(message.receiver for message in records if message.received is not None)
    assert {task: now.sent for task, now in last.items() if now.sent} == sent
    assert {task: now.received + now.dropped for task, now in last.items() if now.received + now.dropped} == arrived


@given(diagrams())
def test_the_page_has_the_state_behind_every_step_and_shows_the_last_without_scripts(diagram: Diagram) -> None:
    page = spacetime_html(diagram)
    data = re.search("(?s)<script id=run type=application/json>(.*?)</script>", page)
    assert data is not None
    facts = json.loads(data[1])
    assert facts["steps"] == diagram.steps()
    rows = re.findall("<tr(?: class=first)?><td>.*?</tr>", page)
    assert len(rows) == len(facts["tasks"]) == len(diagram.lines())
    for row, changes in zip(rows, facts["tasks"], strict=True):
        assert re.findall("<td>([^<]*)</td>", row)[1:] == changes[-1][1:]


@pytest.mark.parametrize("named", ["loss", "hostile"])
def test_a_browser_runs_the_page_and_complains_of_nothing(named: str, tmp_path: Path, chromium: None) -> None:
    hostile = Diagram(BAD, (BAD, "b"), (Moment(1, BAD, BAD, "copy", 1),), (Message(BAD, "b", 1, 2, BAD, 1),), BAD)
    path = tmp_path / "page.html"
    path.write_text(spacetime_html(loss(local=True) if named == "loss" else hostile), encoding="utf-8")
    found = browser()
    assert found is not None
    run = subprocess.run(
        [found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
         "--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in run.stderr
    assert '<body class="live">' in run.stdout
    assert re.search(r"<output[^>]*>step \d+</output>", run.stdout)
    assert '<line class="cursor"' in run.stdout
    assert "<img" not in run.stdout
