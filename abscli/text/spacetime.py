"""Space-time diagrams as text: time runs downwards, a column a task. The picture is `abscli.draw.spacetime_svg`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment
from abscli.text.cells import cells, shortened
from abscli.text.columns import clean

LEAST, MOST = 10, 28  # columns of the terminal from one task to the next
_UNICODE = {"copy": "■", "crash": "✕", "restore": "○", "violation": "!", "event": "●", "life": "│", "late": "├┤",
            "line": "─", "way": "┄", "cross": "┼", "heads": "▶◀", "open": "▷◁", "self": "↻"}  # fmt: skip
_ASCII = {"copy": "#", "crash": "X", "restore": "O", "violation": "!", "event": "*", "life": "|", "late": "++",
          "line": "-", "way": ".", "cross": "+", "heads": "><", "open": "><", "self": "@"}  # fmt: skip


def spacetime_text(diagram: Diagram, *, width: int = 80, ascii: bool = False, max_steps: int | None = None) -> str:
    """The run, a step a line and more where things would overlap; the violation comes last.

    width: columns; with many tasks lines are longer (10 columns a task). max_steps: keeps the last ones. A message is
    drawn when it leaves (dotted, open head) and when it arrives (`@3`: it left at step 3), once if that is one step.
    """
    return "\n".join(line.rstrip() for line in _Page(diagram, width, ascii, max_steps).lines()) + "\n"


def window(diagram: Diagram, max_steps: int | None) -> tuple[list[int], int]:
    """The steps to show, and how many earlier ones are left out."""
    steps = diagram.steps()
    left_out = max(0, len(steps) - max(1, max_steps)) if max_steps is not None else 0
    return steps[left_out:], left_out


class _Row:
    """A line of the terminal; what has been put into a cell is not overwritten."""

    def __init__(self, size: int) -> None:
        self.cells: list[str | None] = [None] * size

    def is_free(self, start: int, end: int) -> bool:
        return all(cell is None for cell in self.cells[start:end])

    def put(self, start: int, text: str) -> None:
        """Writes a text; wide characters take two cells, combining marks none."""
        for char in text:
            size = cells(char)
            if size == 0 and start > 0:
                self.cells[start - 1] = (self.cells[start - 1] or "") + char
            elif start + size <= len(self.cells):
                self.cells[start : start + size] = [char, *[""] * (size - 1)]
            start += size


class _Page:
    """The lines of one diagram."""

    def __init__(self, diagram: Diagram, width: int, ascii: bool, max_steps: int | None) -> None:
        self.diagram = diagram
        self.signs = _ASCII if ascii else _UNICODE
        self.ascii = ascii
        self.steps, self.left_out = window(diagram, max_steps)
        tasks = diagram.lines()
        self.margin = max([4, *(len(str(step)) for step in self.steps[-1:])]) + 2
        self.width = max(width, self.margin + LEAST * len(tasks))
        self.pitch = min(MOST, (self.width - self.margin) // max(1, len(tasks)))
        self.x = {task: self.margin + at * self.pitch for at, task in enumerate(tasks)}
        self.dead: set[str] = set()

    def lines(self) -> Iterator[str]:
        """All of it."""
        yield from self._wrapped(self.diagram.title)
        yield from self._legend()
        yield ""
        yield from self._heads()
        if self.left_out:
            yield self._word(f"{' ' * self.margin}... {self.left_out} earlier step{'s'[: self.left_out != 1]} left out")
        first = self.steps[0] if self.steps else 0
        for moment in sorted(self.diagram.moments, key=lambda m: m.step):
            if moment.step < first:
                self._live(moment)
        at_step: dict[int, list[Moment | tuple[Message, bool]]] = {step: [] for step in self.steps}
        for message in self.diagram.messages:
            if message.received is not None and message.received in at_step:
                at_step[message.received].append((message, True))
        for moment in self.diagram.moments:
            if moment.step in at_step:
                at_step[moment.step].append(moment)
        for message in self.diagram.messages:
            if message.sent in at_step and message.sent != message.received:
                at_step[message.sent].append((message, False))
        for step in self.steps:
            yield from self._step(step, at_step[step])
        yield from self._notes()

    def _legend(self) -> Iterator[str]:
        shown = set(self.steps)
        kinds = {moment.kind for moment in self.diagram.moments if moment.step in shown}
        words = [f"{self.signs[kind]} {kind}" for kind in ("copy", "crash", "restore") if kind in kinds]
        if any(m.sent != m.received for m in self.diagram.messages if {m.sent, m.received} & shown):
            late, line, head, way, open = (self.signs[name][0] for name in ("late", "line", "heads", "way", "open"))
            words = [f"{way}{way}{open} leaves", f"{late}{line}{head} arrives, @3: left at step 3", *words]
        if words:
            yield from self._wrapped("; ".join(words))

    def _heads(self) -> Iterator[str]:
        row = _Row(self.width)
        row.put(0, "step".rjust(self.margin - 2))
        cut = []
        for task, x in self.x.items():
            whole = self._word("coord." if task == COORDINATOR and self.pitch <= len(task) else task)
            name = self._word(whole, self.pitch - 1)
            row.put(x, name)
            cut += [f"{name}: {whole}"] if name != whole else []
        yield self._text(row)
        for line in cut:
            yield from self._wrapped(" " * self.margin + line)

    def _step(self, step: int, items: Sequence[Moment | tuple[Message, bool]]) -> Iterator[str]:
        """The lines of one step: arrivals, moments, departures; each in the first line that has room for it."""
        rows: list[_Row] = []
        notes: list[str] = []
        reached = dict.fromkeys(self.x, 0)  # the line that a task has come to: its events keep their order
        lives: list[set[str]] = []
        for item in items:
            if isinstance(item, Moment):
                task, (start, text, whole) = item.task, self._moment(item)
            else:
                task, (start, text, whole) = item[0].sender, self._message(*item)
            if whole is not None:
                notes.append(whole)
            at = reached[task]
            while at < len(rows) and not rows[at].is_free(start, start + cells(text)):
                at += 1
            while at >= len(rows):
                rows.append(_Row(self.width))
                lives.append(set(self.dead))
            rows[at].put(start, text)
            reached[task] = at
            if isinstance(item, Moment):
                self._live(item)
                lives[at + 1 :] = [set(self.dead) for _ in lives[at + 1 :]]
            elif item[1]:
                reached[item[0].receiver] = max(reached[item[0].receiver], at)
        for at, row in enumerate(rows):
            for task, x in self.x.items():
                if row.cells[x] is None and task not in lives[at]:
                    row.put(x, self.signs["life"])
            if at == 0:
                row.put(0, str(step).rjust(self.margin - 2))
            yield self._text(row)
        for note in notes:
            yield from self._wrapped(" " * self.margin + note)

    def _live(self, moment: Moment) -> None:
        """A crash ends a task's line, a restore begins it again."""
        if moment.kind == "crash":
            self.dead.add(moment.task)
        elif moment.kind == "restore":
            self.dead.discard(moment.task)

    def _moment(self, moment: Moment) -> tuple[int, str, str | None]:
        sign = self.signs.get(moment.kind, self.signs["event"])
        return self._marked(moment.task, sign, clean(moment.label) or moment.kind)

    def _marked(self, task: str, sign: str, label: str) -> tuple[int, str, str | None]:
        """Where it starts, its text, and the whole of it where that had to be shortened."""
        x = self.x[task]
        text = self._word(label, self.width - x - 2)
        return x, f"{sign} {text}", None if text == self._word(label) else f"{task}: {label}"

    def _message(self, message: Message, arrives: bool) -> tuple[int, str, str | None]:
        label = self._word(message.label)
        sender, receiver = self.x[message.sender], self.x[message.receiver]
        if sender == receiver:
            again = f"{label} @{message.sent}" if arrives else f"{label} {self.signs['self']}"
            return self._marked(message.sender, self.signs["self" if arrives else "event"], again)
        rightwards = receiver > sender
        gap = abs(receiver - sender) - 1
        room = gap - 3  # a piece of line at either side, and the head
        at_once = message.sent == message.received
        full = f"{label} @{message.sent}" if arrives and not at_once else label
        if not arrives and gap >= self.pitch:  # the next column is not the receiver's
            full = f"{label} to {self._word(message.receiver)}"
        shown = next((text for text in (full, label) if cells(text) <= room), self._word(label, room))
        line = self.signs["line" if arrives else "way"]
        free = (gap if arrives else min(gap, cells(shown) + 4)) - 1 - cells(shown)
        body = line * (free // 2) + shown + line * (free - free // 2)
        head = self.signs["heads" if arrives else "open"][not rightwards]
        tail = self.signs["late"][not rightwards] if arrives and not at_once else self.signs["event"]
        text = tail + body + head if rightwards else head + body + tail
        start = sender if rightwards else sender - cells(text) + 1
        whole = None
        if shown not in (full, label) and not message.barrier and (at_once or not arrives):
            whole = f"{message.label}: {message.sender} to {message.receiver}"
        return start, self._crossed(text, start, shown), whole

    def _crossed(self, text: str, start: int, label: str) -> str:
        """The arrow with a crossing where it passes another task's line."""
        if cells(text) != len(text):
            return text
        at = text.index(label) if label else 0
        drawn = list(text)
        for x in self.x.values():
            place = x - start
            if 0 < place < len(text) - 1 and not at <= place < at + len(label):
                drawn[place] = self.signs["cross"]
        return "".join(drawn)

    def _notes(self) -> Iterator[str]:
        shown = set(self.steps)
        lost = [m for m in self.diagram.messages if m.received is None and m.sent in shown]
        for message in lost:
            yield from self._wrapped(
                f"not received: {message.label}, {message.sender} to {message.receiver}, sent at {message.sent}"
            )
        if self.diagram.violation is not None:
            yield ""
            yield from self._wrapped(f"VIOLATION: {self.diagram.violation}")

    def _word(self, text: str, limit: int | None = None) -> str:
        """A text that can be shown here, shortened to the limit."""
        shown = clean(text)
        if self.ascii:
            shown = shown.encode("ascii", "backslashreplace").decode("ascii")
        if limit is None:
            return shown
        cut = shortened(shown, limit)
        return cut.replace("\u2026", "~") if self.ascii else cut

    def _wrapped(self, text: str) -> list[str]:
        """A paragraph; its further lines are indented by two more. A word that is too long is broken."""
        words = self._word(text)
        indent = " " * (len(words) - len(words.lstrip(" ")))
        lines, line, start = [], indent, indent
        for word in words.split():
            if line != start and cells(line) + 1 + cells(word) > self.width:
                lines.append(line)
                line = start = indent + "  "
            line += word if line == start else f" {word}"
            while cells(line) > self.width:
                cut = next(at for at in range(len(line), 0, -1) if cells(line[:at]) <= self.width)
                lines.append(line[:cut])
                start = indent + "  "
                line = start + line[cut:]
        return [*lines, line]

    @staticmethod
    def _text(row: _Row) -> str:
        return "".join(" " if cell is None else cell for cell in row.cells)
