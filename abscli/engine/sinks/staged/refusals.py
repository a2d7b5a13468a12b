"""What targets of staged rows have in common to say."""

from __future__ import annotations

from abscli.engine.errors import EngineStopped, JobFailed, Overtaken, UsageError
from formats.errors import Damaged
from formats.ids import EpochId
from formats.native.facts import SinkFile


def taken_over(operator: str, title: str) -> Overtaken:
    """Another attempt has the target now."""
    return Overtaken(
        f"sink {operator}: {title} was taken over by another attempt",
        hint="resume with the store of that attempt; the rows staged in the current store are kept",
    )


def rows_refused(operator: str, title: str, reason: str) -> JobFailed:
    """Return the error for rows that a target refused before a manifest named them."""
    return JobFailed(
        f"sink {operator}: {title} rejected the rows: {reason}",
        hint="change the target or the job so that the target accepts the rows, then resume; no epoch names the rows "
        "yet",
    )


def rows_refused_late(operator: str, title: str, epoch: int, reason: str) -> JobFailed:
    """Return the error for rows that a target refused when they were delivered, as after a change to it."""
    return JobFailed(
        f"sink {operator}: {title} rejected the rows of epoch {epoch}: {reason}",
        hint="undo the change to the target and resume; or change the job so that the target accepts its rows, and use "
        f"--from-epoch to resume from an epoch earlier than {epoch}",
    )


def rows_lost(operator: str, title: str, epoch: int, file: SinkFile, root: str = "") -> Damaged:
    """Return the error for staged rows that a manifest names, and that are neither committed nor staged any more.

    root: of the store, for rows that were staged there.
    """
    if file.prepared is not None:
        return Damaged(
            f"{file.rows} rows are missing: the transaction {file.prepared}, which sink {operator} prepared for epoch "
            f"{epoch}, is neither prepared nor committed",
            path=title,
            hint="somebody rolled the transaction back in the database: use --from-epoch to resume from an epoch "
            "before it; or use --accept-missing-parts to resume without its rows",
        )
    return Damaged(
        f"{file.rows} rows are missing: sink {operator} staged them in this file for epoch {epoch}, and {title} does "
        "not contain them",
        path=f"{root}/{file.staged}",
        hint="use --from-epoch to resume from an epoch before these rows; or use --accept-missing-parts to resume "
        "without them",
    )


def foreign_commits(operator: str, title: str, newest: int) -> UsageError:
    """Return the error for a target with commits that are not part of the history being resumed.

    newest: the newest epoch of such a commit.
    """
    return UsageError(
        f"sink {operator}: {title} has committed rows up to epoch {newest} that are not part of the history being "
        "resumed, and cannot be rolled back",
        hint="resume from the newest epoch of the store that committed these rows; or delete the rows yourself, then "
        "resume with --take-ownership (it deletes no rows)",
    )


def commits_lost(operator: str, title: str, commit: EpochId) -> EngineStopped:
    """Return the error for a target that has become an older copy of itself while the job ran."""
    return EngineStopped(
        f"sink {operator}: {title} contained the rows of epoch {commit.number}, but lost them while the job ran",
        hint="if the server was replaced by an older copy, restore the newer copy; `abs run --resume` then "
        "delivers the rows that are still in the store, and reports missing rows",
    )


def crowded(operator: str, title: str) -> EngineStopped:
    """Each try was overtaken by somebody else's commit."""
    return EngineStopped(
        f"sink {operator}: cannot commit to {title}: other writers committed first, every time",
        hint="run `abs run --resume` when the other writers have finished",
    )


class Unanswered(EngineStopped):
    """The target cannot be asked now, or has not answered what became of a step; it may later.

    reason: what its client reports.
    """

    def __init__(self, message: str, *, hint: str | None = None, reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def unreadable(operator: str, title: str, reason: str) -> Unanswered:
    """Return the error for a table that cannot be read now."""
    return Unanswered(
        f"sink {operator}: the table {title} cannot be read: {reason}",
        hint="staged rows are kept; `abs run --resume` delivers them", reason=reason,
    )  # fmt: skip


def unwritten(operator: str, title: str, reason: str) -> Unanswered:
    """Return the error for a table that cannot be written now."""
    return Unanswered(
        f"sink {operator}: {title} cannot be written: {reason}",
        hint="staged rows are kept; `abs run --resume` delivers them", reason=reason,
    )  # fmt: skip


def other_table(title: str, before: str | None, now: str | None) -> str | None:
    """That a table is not the one any more that a sink has written into; None where it is, or has written into none.

    before, now: what tells tables of one name apart; None of one that is not there.
    """
    if before is None or before == now:
        return None
    if now is None:
        return f"{title} is missing: the sink has written to the table with the id {before}"
    return f"{title} was replaced: the sink has written to the table with the id {before}, and this one has {now}"


def first_line(error: Exception) -> str:
    """What an error says, in a line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
