"""A space-time diagram as a page: the picture, a cursor to go through its steps, and what each task is there.

One file that asks for nothing from anywhere: its script and its styles are named by their digests in its policy
(Content Security Policy, level 3). Without scripts it shows the picture and the state behind the last step.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence

from abscli.draw.spacetime_layout import LANE, laid_out
from abscli.draw.spacetime_svg import spacetime_svg
from abscli.sim.diagram import COORDINATOR, Diagram
from abscli.sim.states import TaskState, states
from abscli.text.columns import clean

BEGINNING = """<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=generator content="abs simulate">"""
"""The first characters of every such page, by which an earlier one is recognised."""

MAX_STEPS = 400
HEADS = ("task", "", "copied", "complete", "inputs that wait", "records received", "sent", "dropped, come before")

_STYLE = """
body{margin:16px;font:14px ui-sans-serif,system-ui,'Segoe UI','DejaVu Sans',sans-serif;color:#1b222a;background:#fff}
.picture{overflow-x:auto;position:relative}
.live .picture svg{cursor:pointer}
.later{opacity:.12}
.cursor{stroke:#d1242f;stroke-width:1.5}
nav{display:none;gap:8px;align-items:center;margin:12px 0;position:sticky;top:0;background:#fff}
.live nav{display:flex}
nav button{min-width:2.4em;font:inherit}
nav input{flex:1;min-width:100px}
output{font-weight:600;min-width:6em}
#events{min-height:2.6em;margin:0 0 12px}
table{border-collapse:collapse}
td,th{padding:2px 14px 2px 0;text-align:left;border-bottom:1px solid #e4e8ec;font-variant-numeric:tabular-nums}
td:not(:first-child,:nth-child(2)),th:not(:first-child){text-align:right}
td:first-child{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.first td{border-top:2px solid #9aa5b0}
.changed td{background:#fff3c4}
@media (prefers-color-scheme:dark){body,nav{color:#e8edf2;background:#14181d}td,th{border-color:#2b333b}
.first td{border-top-color:#5a6672}.changed td{background:#4a3f10}.cursor{stroke:#ff7b82}}
@media print{nav,#events{display:none}.picture{overflow:visible}}
"""

_SCRIPT = """
'use strict';
const run = JSON.parse(document.getElementById('run').textContent);
const byId = id => document.getElementById(id);
const slider = byId('step'), shown = byId('shown'), events = byId('events'), play = byId('play');
const picture = document.querySelector('.picture'), drawing = picture.querySelector('svg');
const parts = [...drawing.querySelectorAll('[data-step]')];
const names = drawing.querySelector('.names');
const rows = [...document.querySelectorAll('tbody tr')];
const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
cursor.setAttribute('class', 'cursor');
cursor.setAttribute('y1', run.top);
cursor.setAttribute('y2', run.bottom);
drawing.insertBefore(cursor, names);
const last = run.steps.length - 1;
let timer = null;
function show(move) {
  const at = Number(slider.value), step = run.steps[at], x = run.x[at];
  shown.textContent = 'step ' + step;
  for (const part of parts) part.classList.toggle('later', Number(part.dataset.step) > step);
  cursor.setAttribute('x1', x);
  cursor.setAttribute('x2', x);
  if (move && (x < picture.scrollLeft + 200 || x > picture.scrollLeft + picture.clientWidth - 60))
    picture.scrollLeft = x - picture.clientWidth / 2;
  const here = parts.filter(part => Number(part.dataset.step) === step && part.querySelector('title'));
  const texts = here.map(part => part.querySelector('title').textContent.replace(/^step [0-9]+, /, ''));
  events.textContent = texts.slice(0, 12).join(' \\u00b7 ') + (texts.length > 12 ? ' \\u2026' : '');
  rows.forEach((row, number) => {
    const changes = run.tasks[number].filter(change => change[0] <= step);
    const cells = changes[changes.length - 1];
    row.classList.toggle('changed', cells[0] === step);
    [...row.cells].slice(1).forEach((cell, n) => { cell.textContent = cells[n + 1]; });
  });
}
function stop() { clearInterval(timer); timer = null; play.textContent = '\\u25b6'; }
function to(at) { slider.value = at; show(true); }
function go(by) { to(Number(slider.value) + by); }
function playing() {
  if (Number(slider.value) >= last) to(0);
  timer = setInterval(() => { go(1); if (Number(slider.value) >= last) stop(); }, 350);
  play.textContent = '\\u2016';
}
slider.max = last;
slider.value = last;
slider.addEventListener('input', () => { stop(); show(true); });
byId('back').addEventListener('click', () => { stop(); go(-1); });
byId('on').addEventListener('click', () => { stop(); go(1); });
play.addEventListener('click', () => { if (timer === null) playing(); else stop(); });
drawing.addEventListener('click', event => {
  const x = event.clientX - drawing.getBoundingClientRect().left;
  let nearest = 0;
  run.x.forEach((other, at) => { if (Math.abs(other - x) < Math.abs(run.x[nearest] - x)) nearest = at; });
  stop();
  slider.value = nearest;
  show(false);
});
document.addEventListener('keydown', event => {
  if (event.target === slider || event.altKey || event.ctrlKey || event.metaKey) return;
  const keys = { ArrowLeft: () => go(-1), ArrowRight: () => go(1), Home: () => to(0), End: () => to(last) };
  if (keys[event.key] !== undefined) { event.preventDefault(); stop(); keys[event.key](); }
});
picture.addEventListener('scroll', () => {
  names.setAttribute('transform', 'translate(' + picture.scrollLeft + ' 0)');
});
document.body.classList.add('live');
show(false);
"""


def spacetime_html(diagram: Diagram) -> str:
    """The page, of the last 400 steps at most."""
    picture = spacetime_svg(diagram, max_steps=MAX_STEPS)
    layout = laid_out(diagram, MAX_STEPS)
    begins = {task: {0: TaskState()} | changes for task, changes in states(diagram).items()}
    cells = {task: [(step, *_cells(task, now)) for step, now in at.items()] for task, at in begins.items()}
    facts = {
        "steps": list(layout.steps),
        "x": [round(x, 1) for x in layout.steps.values()],
        "top": min(layout.tasks.values(), default=0.0) - LANE,
        "bottom": layout.bottom + LANE,
        "tasks": list(cells.values()),
    }
    # No text may end the element that it stands in.
    data = json.dumps(facts, ensure_ascii=True).replace("<", "\\u003c")
    styles = [_STYLE, *(part.partition("</style>")[0] for part in picture.split("<style>")[1:])]
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_digest, styles))}; script-src {_digest(_SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )
    heads = "".join(f"<th scope=col>{html.escape(head)}</th>" for head in HEADS)
    group = dict(zip(diagram.tasks, diagram.groups, strict=False))
    before = [None, *(group.get(task, "") for task in cells)]
    rows = "\n".join(
        _row(task, changes[-1][1:], is_first=group.get(task, "") != previous)
        for (task, changes), previous in zip(cells.items(), before, strict=False)
    )
    title = html.escape(clean(diagram.title))
    return f"""{BEGINNING}
<meta http-equiv=Content-Security-Policy content="{policy}">
<meta name=viewport content="width=device-width">
<title>{title}</title>
<style>{_STYLE}</style>
<div class=picture>
{picture}</div>
<nav><button id=back type=button title="a step back (left arrow)" aria-label=back>&#9664;</button>
<button id=play type=button title="all steps, one after the other" aria-label=play>&#9654;</button>
<button id=on type=button title="a step on (right arrow)" aria-label=on>&#9654;&#9654;</button>
<input id=step type=range min=0 value=0 aria-label=step><output id=shown for=step></output></nav>
<p id=events aria-live=polite></p>
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


def _row(task: str, cells: Sequence[object], *, is_first: bool) -> str:
    head = f"<tr{' class=first' if is_first else ''}><td>{html.escape(clean(task))}</td>"
    return f"{head}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
