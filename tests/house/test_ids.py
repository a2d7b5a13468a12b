"""Names of tasks and channels are glued and cut apart in one module; everywhere else they are ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.support.imports import MODULES, ROOT, nodes

IDS = "formats/ids.py"
CUTS_PATHS = {
    "abscli/cli/bundle/bootstrap.py",
    "abscli/cli/bundle/contents.py",
    "abscli/cli/hints.py",
    "abscli/engine/sources/files/input_files.py",
    "abscli/stores/flink/diff.py",
    "abscli/stores/spark/naming.py",
    "abscli/stores/spark/rewind.py",
    "formats/flink/connectors/pending_files.py", "formats/flink/connectors/pending_manifests.py",
    "formats/flink/facts.py",
    "formats/flink/files/folders.py",
    "formats/flink/files/layout.py",
    "formats/flink/files/resolve.py",
    "formats/flink/rewrite.py",
    "formats/flink/store.py",
    "formats/native/layout.py",
    "formats/native/remove.py",
    "formats/redaction.py",
    "formats/schema.py",
    "formats/spark/checkpoint.py",
    "formats/spark/logs/operators.py",
    "formats/storage/contract.py", "formats/storage/hadoop.py", "formats/storage/hdfs/storage.py",
    "formats/storage/objects.py", "formats/storage/places.py", "formats/storage/reading.py",
}
"""What they cut at `/` are paths of files, or in a schema."""

TYPED = (
    "abscli/diff/",
    "abscli/engine/",
    "abscli/planner/",
    "abscli/protocol/",
    "abscli/report/",
    "abscli/sim/",
    "abscli/stores/native/checks/",
    "formats/job/expand.py",
    "formats/native/",
    "formats/view.py",
)
"""Where a task is a TaskId and a channel a ChannelId."""

EDGES = {
    "abscli/planner/named.py": "tasks that people name",
    "abscli/planner/plan.py": "what a plan file says",
    "abscli/protocol/trace.py": "what a line of a trace says",
    "abscli/sim/diagram.py": "the words of a picture",
    "formats/native/counters.py": "the names of a million channels, glued from those of their tasks",
    "formats/native/facts.py": "what a file of facts says",
    "formats/native/layout.py": "paths",
    "formats/native/plan.py": "what a plan file says",
    "formats/view.py": "a channel as it is put out",
}
"""Where text begins there: with what."""

PAGES = {
    "abscli/commands/inspect.py": "the task that a command line names",
    "abscli/draw/spacetime_cuts.py": "the words of a picture",
    "abscli/draw/spacetime_html.py": "the words of a picture",
    "abscli/draw/spacetime_layout.py": "the words of a picture",
    "abscli/draw/spacetime_svg.py": "the words of a picture",
    "abscli/pages/facts.py": "what a line of JSON says",
    "abscli/pages/saved.py": "what a line of JSON said when it was saved",
    "abscli/text/inspect_page.py": "the task that people name, and what a line of JSON says",
    "abscli/text/spacetime.py": "the words of a picture",
}
"""Where text begins in the other modules: with what."""

SYSTEMS = "abscli/sim/chandy_lamport/"
"""Systems of processes and pipes with any names, which are no jobs; the protocol's machine gets ids for them."""

OF_IDS = re.compile(
    r"(^|_)(tasks?|channels?|senders?|receivers?|inputs|outputs|sources|sinks|inboxes|regular|logged|blocked|awaits"
    r"|awaited|missing|dead|notices|history|replayed|behind|send|sent|received|logs|ended|acks)$"
)
"""What is called so is, holds or is looked up by tasks or channels."""

OTHERS = {
    ("abscli/engine/generations/change.py", "logged"),
    ("abscli/engine/columns.py", "inputs"),
    ("abscli/engine/columns.py", "join_inputs"),
    ("abscli/engine/columns.py", "sources"),
    ("abscli/engine/generations/generation.py", "received"),
    ("abscli/stores/native/checks/growth.py", "received"),
    ("abscli/stores/native/checks/growth.py", "sent"),
    ("abscli/engine/generations/generation.py", "sent"),
    ("abscli/planner/adjacency.py", "inputs"),
    ("abscli/planner/adjacency.py", "outputs"),
    ("abscli/planner/guarantee.py", "sources"),
    ("abscli/planner/succession.py", "_outputs"),
    ("abscli/planner/succession.py", "_tasks"),
    ("abscli/stores/native/checks/parts.py", "inputs"),
}
"""What is called so and is, or is by, operators."""

IS_ID = re.compile(r"(^|_)(task|channel|sender|receiver)s?$")
"""Outside of these packages: what is called so is one, or several, or is looked up by one."""

ENDS = {"operator", "op", "sender", "receiver", "source", "target", "task"}
"""Of what names are glued: behind one of these stands no `/` or `->`."""

GLUES_OTHERS = {
    "abscli/engine/sources/made/generated.py": "which part of all rows a split is",
    "abscli/sim/chandy_lamport/stable.py": "a pipe between two processes",
    "formats/native/names.py": "the pattern of a channel's name on disk",
    "formats/spark/layout.py": "paths",
}
"""What they glue of these is something else."""

MAKE_TEXT = {"task_name", "subtask_names", "channel_name", "operator_of", "ends_of", "edge_of"}
"""Functions on text where an id would do."""

NAMES = [str(path.relative_to(ROOT)) for path in MODULES]


def cuts(name: str) -> Iterator[tuple[str, int]]:
    """At what a module cuts texts, and in which line."""
    for node in nodes(ROOT / name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            at = node.args[0]
            if (
                node.func.attr in ("partition", "rpartition", "split", "rsplit", "index", "rindex", "find", "rfind")
                and isinstance(at, ast.Constant)
                and isinstance(at.value, str)
            ):
                yield at.value, node.lineno


def test_no_other_module_cuts_the_name_of_a_task_or_channel() -> None:
    offenders = []
    for name in NAMES:
        for at, line in cuts(name) if name != IDS else ():
            if at == "->":
                offenders.append(f"{name}:{line} cuts a channel's name: `formats.ids` does that")
            elif at == "/" and name not in CUTS_PATHS:
                offenders.append(f"{name}:{line} cuts a task's name, or has to be named in CUTS_PATHS")
    assert not offenders, "\n".join(offenders)


def test_the_modules_that_cut_paths_do() -> None:
    assert {name for name in NAMES if name != IDS and any(at == "/" for at, _ in cuts(name))} == CUTS_PATHS


def last_name(value: ast.expr) -> str:
    """What a value in a text is called: `operator` of `operator`, `row.operator` and `operator.id`."""
    match value:
        case ast.Name(id=called):
            return called
        case ast.Attribute(value=of, attr="id"):
            return last_name(of)
        case ast.Attribute(attr=called):
            return called
    return ""


def glues(name: str) -> Iterator[tuple[str, int]]:
    """The names of tasks, channels and edges that a module puts together itself, and in which line."""
    for node in nodes(ROOT / name):
        match node:
            case ast.JoinedStr(values=parts):
                for before, between in pairwise(parts):
                    if not isinstance(before, ast.FormattedValue) or not isinstance(between, ast.Constant):
                        continue
                    text = str(between.value)
                    if text == "->" or (text.startswith(("/", "->")) and last_name(before.value) in ENDS):
                        yield text, node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Constant(value="->"), attr="join")):
                yield "->", node.lineno


def test_no_other_module_puts_the_name_of_a_task_or_channel_together() -> None:
    others = (name for name in NAMES if name != IDS and name not in GLUES_OTHERS)
    offenders = [f"{name}:{line} writes a name with {text!r}" for name in others for text, line in glues(name)]
    assert not offenders, "\n".join(["`formats.ids` makes names:", *offenders])


def test_the_modules_that_glue_something_else_do() -> None:
    assert {name for name in NAMES if name != IDS and [*glues(name)]} == GLUES_OTHERS.keys()
    assert {text for text, _ in glues(IDS)} == {"->", "/"}


def texts(name: str, ids: re.Pattern[str] = OF_IDS, *, functions: bool = True) -> Iterator[tuple[str, int]]:
    """What a module declares as text, or as made of text, and is called as a task or a channel is; in which line."""
    for node in nodes(ROOT / name):
        called: str | None = None
        declared: ast.expr | None = None
        match node:
            case ast.arg(arg=called, annotation=declared):
                pass
            case ast.AnnAssign(target=ast.Name(id=called) | ast.Attribute(attr=called), annotation=declared):
                pass
            case ast.FunctionDef(name=called, returns=declared):
                pass
        if isinstance(node, ast.FunctionDef) and not functions:
            continue
        if called is None or declared is None or ids.search(called) is None:
            continue
        if any(isinstance(part, ast.Name) and part.id == "str" for part in ast.walk(declared)):
            yield called, node.lineno


def imported(name: str) -> set[str]:
    """What a module imports, by its own name."""
    return {alias.name for node in nodes(ROOT / name) if isinstance(node, ast.ImportFrom) for alias in node.names}


def typed(name: str) -> bool:
    """Whether a module has no text for a task or channel."""
    return name.startswith(TYPED) and name not in EDGES and not name.startswith(SYSTEMS)


def test_where_a_job_runs_a_task_or_channel_is_no_text() -> None:
    offenders = []
    for name in filter(typed, NAMES):
        for called, line in texts(name):
            if (name, called) not in OTHERS:
                offenders.append(f"{name}:{line}: {called} is declared as text: `TaskId` or `ChannelId`?")
        offenders += [f"{name} imports {function}, which makes text" for function in imported(name) & MAKE_TEXT]
    assert not offenders, "\n".join(offenders)


def others(name: str) -> bool:
    """Whether a module is none of those in which nothing is text: formats of others, systems and pages."""
    return name != IDS and not name.startswith(TYPED) and not name.startswith(SYSTEMS)


def test_in_formats_and_on_pages_a_task_or_channel_is_no_text_either() -> None:
    # what a function is called that makes the lines of a page says what they are about
    offenders = [
        f"{name}:{line}: {called} is declared as text: `TaskId` or `ChannelId`?"
        for name in NAMES
        if others(name) and name not in PAGES
        for called, line in texts(name, IS_ID, functions=False)
    ]
    assert not offenders, "\n".join(offenders)


def test_what_may_have_text_has_it() -> None:
    assert {(name, called) for name in NAMES if typed(name) for called, _ in texts(name)} == OTHERS
    assert all([*texts(name)] or imported(name) & MAKE_TEXT for name in EDGES)
    assert all([*texts(name, IS_ID, functions=False)] for name in PAGES)
