"""What `abs gc` shows: what goes, why, and how many bytes that is."""

from __future__ import annotations

from abscli.stores.removal import OrphanFile, Removal
from abscli.text.columns import columns, marked, moment, seconds, size, some, wrapped

NAMED = 3
"""Files of one kind that are named; json has them all."""


def text(
    removal: Removal, *, store: str, job: str | None, removed: bool, command: str, width: int = 80, ascii: bool = False
) -> str:
    """Epochs, then files, then the sum. command: what carries it out."""
    sections = [
        wrapped(f"Store {store}, job {job}" if job else f"Store {store}", width),
        _epochs(removal, width, ascii),
        _orphans(removal, width),
        [
            line
            for epoch, why in sorted(removal.blocked.items())
            for line in wrapped(f"epoch {epoch} stays: {why}", width, "  ")
        ],
        _reasons(removal, width),
        wrapped(f"what sinks have left is not looked for: {removal.sinks_unknown}", width, "  ", "")
        if removal.sinks_unknown
        else [],
        _sum(removal, removed, command),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _epochs(removal: Removal, width: int, ascii: bool) -> list[str]:
    rows = [
        (
            *(str(e.epoch), marked(e.status, ascii), moment(e.triggered)),
            *(str(e.files), size(e.bytes), str(e.files_kept), e.reason),
        )
        for e in removal.epochs
    ]
    header = ("EPOCH", "STATUS", "TRIGGERED (UTC)", "FILES", "BYTES", "STAY", "BECAUSE")
    if not rows:
        return []
    if len(columns(header, rows, "rllrrrl", width)[1]) <= width:
        return columns(header, rows, "rllrrrl", width)
    lines = columns(header[:-1], [row[:-1] for row in rows], "rllrrr", width)
    body = [line for row, one in zip(lines[1:], removal.epochs, strict=True) for line in (row, f"       {one.reason}")]
    return [lines[0], *body]


def _orphans(removal: Removal, width: int) -> list[str]:
    """A line for all that go, or stay, for one reason."""
    alike: dict[tuple[str, bool], list[OrphanFile]] = {}
    for orphan in removal.orphans:
        alike.setdefault((orphan.reason, orphan.removable), []).append(orphan)
    lines = []
    for (reason, goes), orphans in alike.items():
        ages = sorted((orphan.age for orphan in orphans), reverse=True)
        written = seconds(ages[0]) if ages[0] == ages[-1] else f"{seconds(ages[0])} to {seconds(ages[-1])}"
        stays = "" if goes else f"; {'stays' if len(orphans) == 1 else 'stay'}, written {written} ago"
        amount = size(sum(orphan.bytes for orphan in orphans))
        count = f"{len(orphans):,} file{'s'[: len(orphans) != 1]}, {amount}: {reason}{stays}"
        lines += wrapped(f"{count} ({some([orphan.path for orphan in orphans], NAMED)})", width, "  ", "orphans: ")
    if any(len(orphans) > NAMED for orphans in alike.values()):
        lines.append("  -o json names each")
    return lines


def _reasons(removal: Removal, width: int) -> list[str]:
    """Why epochs stay, where that is not for their age alone."""
    reasons = [reason for why in removal.reasons.values() for reason in why]
    if not any(reason.startswith(("tagged", "the last", "within")) for reason in reasons):
        return []
    return [
        line
        for epoch, why in sorted(removal.reasons.items(), reverse=True)
        for line in wrapped(f"epoch {epoch} stays: {', '.join(why)}", width, "  ")
    ]


def _sum(removal: Removal, removed: bool, command: str) -> list[str]:
    files = sum(e.files for e in removal.epochs) + sum(o.removable for o in removal.orphans)
    kept = ", ".join(map(str, removal.kept[-12:])) or "none"
    kept = f"{len(removal.kept)}, the newest {kept}" if len(removal.kept) > 12 else kept
    if not files and not removal.epochs:
        return [f"Epochs kept: {kept}", "Nothing to remove."]
    count = f"{len(removal.epochs)} epoch{'s'[: len(removal.epochs) != 1]}, {files} file{'s'[: files != 1]}"
    if removed:
        return [f"Epochs kept: {kept}", f"Removed: {count}, {size(removal.bytes)}"]
    outcome = f"Would go: {count}, {size(removal.bytes)}; nothing was changed"
    return [f"Epochs kept: {kept}", outcome, f"Next: {command}"]
