"""Tags: names of epochs, which stay while they have one. What every system answers, and the page of `abs tag`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from abscli.text.columns import UNKNOWN, columns, marked, moment, size, wrapped
from formats.version import FORMAT_VERSION
from formats.view import Status


class Tag(msgspec.Struct, frozen=True):
    """A name of an epoch.

    tagged: when, RFC 3339; None if its file is damaged, which holds the epoch nevertheless.
    status: of the epoch; None where it is gone.
    triggered: when the epoch was.
    bytes: written for the epoch.
    """

    name: str
    epoch: int
    tagged: str | None
    status: Status | None
    triggered: str | None
    bytes: int | None


class Tags(Protocol):
    """The tags of a store."""

    def all(self, epoch: int | None = None) -> list[Tag]:
        """All, or those of one epoch, by epoch, then by name."""

    def epoch_of(self, name: str) -> int:
        """The epoch that has a name; NotFound, BadReference where several have."""

    def add(
        self, epoch: int, name: str, *, quick: bool, move: bool, progress: Callable[[int, int | None], None]
    ) -> bool:
        """Give a complete epoch a name; False if it has that already.

        quick: look at presence and sizes alone. move: take the name from another epoch.

        Raises Damaged for an epoch that is not whole, NotFound for one that is being removed, BadOption for a name that
        is none or is another epoch's.
        """

    def remove(self, name: str, epoch: int | None = None) -> list[int]:
        """Take a name away, from whichever epoch has it or from this one; the epochs that had it. NotFound if none."""


def text(store: str, job: str | None, tags: Sequence[Tag], *, width: int, ascii: bool) -> str:
    """The list, for people."""
    lines = wrapped(f"Store {store}, job {job}" if job else f"Store {store}", width)
    if not tags:
        return "\n".join([*lines, "", "No tags."]) + "\n"
    rows = [
        (
            tag.name, str(tag.epoch), "gone" if tag.status is None else marked(tag.status, ascii), size(tag.bytes),
            moment(tag.triggered), UNKNOWN if tag.tagged is None else moment(tag.tagged),
        )
        for tag in tags
    ]  # fmt: skip
    header = ("TAG", "EPOCH", "STATUS", "NEW", "TRIGGERED (UTC)", "TAGGED (UTC)")
    return "\n".join([*lines, "", *columns(header, rows, "lrlrll", width)]) + "\n"


def to_json(
    store: str, job: str | None, tags: Sequence[Tag], *, added: dict[str, Any] | None, removed: Sequence[int]
) -> dict[str, Any]:
    """`abs.tags`. added: the tag that is new; removed: epochs that have lost one."""
    return {
        "schema": "abs.tags", "version": FORMAT_VERSION, "store": store, "job": job, "tags": msgspec.to_builtins(tags),
        "added": added, "removed": list(removed),
    }  # fmt: skip


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a tag a line."""
    header = {key: value for key, value in result.items() if key != "tags"}
    return header, ({"type": "tag", **tag} for tag in result["tags"])
