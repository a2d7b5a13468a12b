"""What `abs gc` shows of Flink's jobs: whether each may be alive, which files no checkpoint needs, what goes."""

from __future__ import annotations

from abscli.stores.removal import Collected, JobSeen, OrphanFile
from abscli.text.columns import columns, number, seconds, size, some, wrapped

NAMED = 3
"""Files of one kind that are named; json has them all."""


def text(collected: Collected, *, store: str, removed: bool, command: str, width: int = 80) -> str:
    """A line a job, its files by where they lie and why, then the sum. command: what carries it out."""
    removal = collected.removal
    sections = [
        wrapped(f"Flink checkpoints {store}", width),
        _jobs(removal.jobs, width),
        [line for job in removal.jobs for line in _files(job, removal.orphans, width)],
        wrapped(f"Nothing goes: {removal.unknown}", width, "  ", "") if removal.unknown else [],
        _sum(removal.orphans, removed, command),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _jobs(jobs: tuple[JobSeen, ...], width: int) -> list[str]:
    rows = [
        (job.name, "yes" if job.alive else "no", seconds(job.inactive), number(job.orphans), size(job.bytes))
        for job in jobs
    ]
    if not rows:
        return ["No jobs."]
    head, *body = columns(("JOB", "ALIVE?", "SILENT FOR", "ORPHANS", "BYTES"), rows, "llrrr", width)
    lines = [head]
    for job, line in zip(jobs, body, strict=True):
        lines.append(line)
        if job.alive and job.orphans:
            lines += wrapped(job.alive, width, "    ", "    stays: ")
    return lines


def _files(job: JobSeen, orphans: tuple[OrphanFile, ...], width: int) -> list[str]:
    """A line for all files of a job that go, or stay, for one reason."""
    alike: dict[tuple[str, bool], list[OrphanFile]] = {}
    for orphan in orphans:
        if orphan.job == job.name:
            alike.setdefault((orphan.reason, orphan.removable), []).append(orphan)
    lines = []
    for (reason, goes), files in alike.items():
        stay = "" if goes else "; they stay" + ("" if job.alive else ", too young")
        amount = size(sum(orphan.bytes for orphan in files))
        count = f"{len(files):,} file{'s'[: len(files) != 1]}, {amount}: {reason}{stay}"
        lines += wrapped(f"{count} ({some([orphan.path for orphan in files], NAMED)})", width, "    ", "  ")
    return lines


def _sum(orphans: tuple[OrphanFile, ...], removed: bool, command: str) -> list[str]:
    going = [orphan for orphan in orphans if orphan.removable]
    if not going:
        return ["Nothing to remove."]
    count = f"{len(going):,} file{'s'[: len(going) != 1]}, {size(sum(orphan.bytes for orphan in going))}"
    if removed:
        return [f"Removed: {count}"]
    return [f"Would go: {count}; nothing was changed", f"Next: {command}"]
