"""Permissions that a user gives to a job that resumes, by options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Permissions:
    """Options of the user that apply to all sinks of an attempt.

    take_ownership: write to a target that has commits outside of the history.
    accept_missing: resume although rows of the history are missing.
    """

    take_ownership: bool = False
    accept_missing: bool = False
