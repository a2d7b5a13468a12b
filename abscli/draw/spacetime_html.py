"""A space-time diagram as a page: the picture, a cursor to go through its steps, and what each task is there.

One file that asks for nothing from anywhere: its script and its styles are named by their digests in its policy
(Content Security Policy, level 3). Without scripts it shows the picture and the state behind the last step.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence

from abscli.draw.spacetime_svg import spacetime_svg
from abscli.sim.diagram import COORDINATOR, Diagram
from abscli.sim.states import TaskState, states
from abscli.text.columns import clean
from abscli.text.spacetime import window

MAX_STEPS = 400
HEADS = ("task", "", "copied", "complete", "inputs that wait", "records received", "sent", "dropped, come before")

_STYLE = """
body{margin:16px;font:14px ui-sans-serif,system-ui,'Segoe UI','DejaVu Sans',sans-serif;color:#1b222a;background:#fff}
.picture{overflow-x:auto}
.later{opacity:.1}
nav{display:none;gap:8px;align-items:center;margin:12px 0}
.live nav{display:flex}
nav input{flex:1;max-width:900px}
output{min-width:8em}
table{border-collapse:collapse}
td,th{padding:2px 14px 2px 0;text-align:left;border-bottom:1px solid #d5dbe1;font-variant-numeric:tabular-nums}
td:first-child{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.changed td{background:#fff3c4}
@media (prefers-color-scheme:dark){body{color:#e8edf2;background:#14181d}td,th{border-color:#38424d}
.changed td{background:#4a3f10}}
@media print{nav{display:none}}
"""

_SCRIPT = """
'use strict';
const run = JSON.parse(document.getElementById('run').textContent);
const slider = document.getElementById('step'), shown = document.getElementById('shown');
const parts = [...document.querySelectorAll('svg [data-step]')];
const rows = [...document.querySelectorAll('tbody tr')];
function show() {
  const step = run.steps[slider.value];
  shown.textContent = 'step ' + step;
  for (const part of parts) part.classList.toggle('later', Number(part.dataset.step) > step);
  rows.forEach((row, at) => {
    const changes = run.tasks[at].filter(change => change[0] <= step);
    const cells = changes[changes.length - 1];
    row.classList.toggle('changed', cells[0] === step);
    [...row.cells].slice(1).forEach((cell, n) => { cell.textContent = cells[n + 1]; });
  });
}
function go(by) { slider.value = Number(slider.value) + by; show(); }
slider.max = run.steps.length - 1;
slider.value = slider.max;
slider.addEventListener('input', show);
document.getElementById('back').addEventListener('click', () => go(-1));
document.getElementById('on').addEventListener('click', () => go(1));
document.body.classList.add('live');
show();
"""


def spacetime_html(diagram: Diagram) -> str:
    """The page, of the last 400 steps at most."""
    picture = spacetime_svg(diagram, max_steps=MAX_STEPS)
    steps, _ = window(diagram, MAX_STEPS)
    begins = {task: {0: TaskState()} | changes for task, changes in states(diagram).items()}
    cells = {task: [(step, *_cells(task, now)) for step, now in at.items()] for task, at in begins.items()}
    facts = {"steps": steps, "tasks": list(cells.values())}
    # No text may end the element that it stands in.
    data = json.dumps(facts, ensure_ascii=True).replace("<", "\\u003c")
    styles = [_STYLE, *re.findall("(?s)<style>(.*?)</style>", picture)]
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_digest, styles))}; script-src {_digest(_SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )
    heads = "".join(f"<th scope=col>{html.escape(head)}</th>" for head in HEADS)
    rows = "\n".join(_row(task, changes[-1][1:]) for task, changes in cells.items())
    title = html.escape(clean(diagram.title))
    return f"""<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta http-equiv=Content-Security-Policy content="{policy}">
<meta name=viewport content="width=device-width">
<title>{title}</title>
<style>{_STYLE}</style>
<div class=picture>
{picture}</div>
<nav><button id=back type=button>back</button><button id=on type=button>on</button>
<input id=step type=range min=0 value=0 aria-label=step><output id=shown for=step></output></nav>
<table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table>
<script id=run type=application/json>{data}</script>
<script>{_SCRIPT}</script>
"""


def _cells(task: str, state: TaskState) -> tuple[str, ...]:
    numbers = (state.copied, state.complete, state.waiting, state.received, state.sent, state.dropped)
    condition = "" if task == COORDINATOR else state.condition
    return (condition, *("" if number in (None, 0) else str(number) for number in numbers))


def _row(task: str, cells: Sequence[object]) -> str:
    return f"<tr><td>{html.escape(clean(task))}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
