"""What can go wrong between bytes and model; every class carries what a message needs."""

from __future__ import annotations


class FormatError(Exception):
    """A file or store does not say what it should.

    message: what happened, with the two values that disagree; path: the file; hint: what to do next.
    """

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class NotFound(FormatError):
    """No such store, epoch or file."""


class Unreachable(FormatError):
    """A store behind a URI cannot be reached now."""


class Damaged(FormatError):
    """Bytes that are there are not those that were written."""


class ChecksumMismatch(Damaged):
    """Bytes that do not have the checksum that was written with them."""


class UnsupportedVersion(FormatError):
    """Written in a version of the format that this program does not read."""


class UnsafePath(FormatError):
    """A path named by a store leads out of it (absolute, `..` or through a symbolic link)."""


class StoreInUse(FormatError):
    """Another process holds the store's lock."""


class OtherJob(FormatError):
    """The store belongs to another job or topology."""


class OtherFormat(FormatError):
    """The store is of a format that the command, or this version, does not work on."""


class UnknownTask(FormatError):
    """A task, operator or channel that the topology does not have."""


class StalePlan(FormatError):
    """Something that a plan relies on has changed since it was made."""


class MissingPackage(FormatError):
    """A Python package that the command needs is not installed."""


class NoRecovery(FormatError):
    """No recovery is possible; the message says why."""
