"""Whether another Flink restores a snapshot: the rules of `upgrade_rules`, asked of every serializer of every state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from abscli.stores.flink.upgrading.schema_rules import SchemaRules
from abscli.stores.flink.upgrading.text_upgrade import StateVerdict, UpgradeReport, Why
from abscli.stores.flink.upgrading.upgrade_rules import (
    IN_FLIGHT,
    METADATA,
    RAW,
    SERIALIZERS,
    SQL,
    SQL_SAME_PLAN,
    STATES,
    TARGETS,
    UNREAD,
    Release,
    Step,
    Verdict,
    of_unknown_class,
)
from abscli.stores.recovery import BadOption
from formats.errors import FormatError
from formats.flink.files.streams import Streams
from formats.flink.ids import OperatorHash
from formats.flink.metadata.file import WRITTEN_BY
from formats.flink.metadata.handles import Metadata, OperatorState
from formats.flink.state.keyed import keyed_meta
from formats.flink.state.meta import StateInfo
from formats.flink.state.operator import operator_meta
from formats.flink.store import FlinkStore
from formats.flink.types.declared import read_declared
from formats.flink.types.serializers import Snapshot, labelled_parts

_ORDER = list(Verdict)
_NUMBER = "(?:0|[1-9][0-9]*)"


def upgrade(store: FlinkStore, epoch: int, version: str, schema: str | None = None) -> UpgradeReport:
    """The verdict on each state of a checkpoint.

    version: of the Flink that is to restore it.
    schema: a file that declares classes as the job is to have them.
    The plan of the store, if it was given, is that of the job that is to be started.

    Raises BadOption for a Flink that is not asked about and for classes that no state has, BadFile, FormatError.
    """
    target = _release(version)
    declared = None if schema is None else SchemaRules(read_declared(schema), target)
    metadata = store.metadata(epoch)
    step = Step(metadata.version, target)
    facts = {(state.operator, state.name): state for state in store.counted_states(epoch)}
    names = store.names(metadata)
    in_plan = _in_plan(store, metadata)
    whole = [Why(METADATA, "_metadata")] if metadata.version > TARGETS[target] else []
    states = []
    for operator in metadata.operators:
        name = names[operator.id]
        in_flight = any(subtask.input_channels or subtask.output_channels for subtask in operator.subtasks)
        about = [*whole, *([Why(IN_FLIGHT, "records in flight")] if in_flight and step.may_be_other else [])]
        for state, own in _reasons(operator, store.streams(epoch), step, declared).items():
            if operator.id in in_plan:
                own = [Why(SQL_SAME_PLAN, why.path) if why.rule.name == SQL else why for why in own]
            fact = facts.get((name, state))
            reasons = (*about, *own)
            states.append(
                StateVerdict(
                    name, state, _worst(reasons), None if fact is None else fact.rows,
                    None if fact is None else fact.bytes, reasons,
                )
            )  # fmt: skip
    if declared is not None:
        declared.check_met()
    return UpgradeReport(
        store=store.path,
        epoch=epoch,
        target=version,
        written_by=WRITTEN_BY[metadata.version],
        verdict=max((state.verdict for state in states), key=_ORDER.index, default=Verdict.RESTORES),
        states=tuple(states),
        upgrade=step.other_minor,
    )


def _in_plan(store: FlinkStore, metadata: Metadata) -> frozenset[OperatorHash]:
    """Return the operators that have the same id in the plan of the job, if the user gave it."""
    if store.plan is None:
        return frozenset()
    hashes = {node.hash for node in store.plan.nodes}
    return frozenset(operator.id for operator in metadata.operators if operator.id in hashes)


def _release(text: str) -> Release:
    match = re.fullmatch(rf"({_NUMBER})\.({_NUMBER})(?:\.{_NUMBER})?", text)
    release = (int(match[1]), int(match[2])) if match else None
    if release not in TARGETS:
        known = ", ".join(f"{major}.{minor}" for major, minor in TARGETS)
        raise BadOption("--for", f"{text!r} is not a Flink release that can be checked; choose one of {known}")
    return release


def _worst(reasons: tuple[Why, ...]) -> Verdict:
    return max((why.rule.verdict for why in reasons), key=_ORDER.index, default=Verdict.RESTORES)


def _reasons(
    operator: OperatorState, streams: Streams, step: Step, declared: SchemaRules | None
) -> dict[str | None, list[Why]]:
    """What speaks against each state, by its name, once for all subtasks. None: state that has no name."""
    by_name: dict[str | None, dict[Why, None]] = {}
    for subtask in operator.subtasks:
        for handle, what in ((subtask.raw_keyed, "raw keyed state"), (subtask.raw_operator, "raw operator state")):
            if handle is not None:
                by_name.setdefault(None, {})[Why(RAW, what)] = None
        try:
            infos = list(_infos(operator, subtask.index, streams))
        except FormatError as error:
            by_name.setdefault(None, {})[Why(UNREAD, error.message)] = None
            continue
        for info, key in infos:
            own = by_name.setdefault(info.name, {})
            own.update(dict.fromkeys(_of_state(info, key, step)))
            if declared is not None:
                own.update(dict.fromkeys(declared.of_state(info, key)))
    return {name: list(reasons) for name, reasons in by_name.items()}


def _infos(operator: OperatorState, index: int, streams: Streams) -> Iterator[tuple[StateInfo, Snapshot | str | None]]:
    """The states of a subtask, each with the serializer of its keys, or the class of one that is not known."""
    subtask = next(subtask for subtask in operator.subtasks if subtask.index == index)
    if subtask.managed_keyed is not None:
        meta = keyed_meta(subtask.managed_keyed, streams)
        if meta is None:
            raise FormatError("its keyed state is stored only as changes in a changelog, without a description of "
                "the state")
        for info in meta.states:
            yield info, meta.key or meta.unknown_key
    if subtask.managed_operator is not None:
        described = operator_meta(subtask.managed_operator, streams)
        for info in (*described.states, *described.broadcast) if described is not None else ():
            yield info, info.key


def _of_state(info: StateInfo, key: Snapshot | str | None, step: Step) -> Iterator[Why]:
    """What speaks against one state. key: the serializer of its keys, or the class of one that is not known."""
    for rule in STATES:
        if rule.hits(step, info.name):
            yield Why(rule, f"state {info.name}")
    for role, snapshot in (("key", key), ("namespace", info.namespace), ("value", info.value)):
        if isinstance(snapshot, str):
            yield Why(of_unknown_class(step, snapshot), f"{role}: {snapshot}")
        elif snapshot is not None:
            yield from _walk(snapshot, f"{role}: ", step)
    if info.unknown is not None:
        yield Why(of_unknown_class(step, info.unknown), f"value: {info.unknown}")


def _walk(snapshot: Snapshot, path: str, step: Step) -> Iterator[Why]:
    """What speaks against a serializer and those within it, with the way to each."""
    about = f" ({snapshot.about})" if snapshot.about else ""
    here = path + snapshot.short
    for rule in SERIALIZERS:
        if rule.hits(step, snapshot):
            yield Why(rule, here + about)
            break
    for label, part in labelled_parts(snapshot):
        if part is not None:
            yield from _walk(part, f"{here}{label} -> ", step)
