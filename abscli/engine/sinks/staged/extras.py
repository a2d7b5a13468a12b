"""Packages that targets need, and that are installed only where they are asked for."""

from __future__ import annotations

from importlib.util import find_spec

from abscli.engine.errors import UsageError
from formats.job.model import Kind, Operator

_NEEDS = {"delta": ("Delta Lake", "deltalake"), "iceberg": ("Iceberg", "pyiceberg")}
"""By type, which is the extra's name, too: what it is called, and a package."""


def require_package(operator: Operator) -> None:
    """UsageError where a sink's package is not installed."""
    type = (operator.connector or {}).get("type") if operator.kind is Kind.SINK else None
    title, package = _NEEDS.get(type, ("", "")) if isinstance(type, str) else ("", "")
    if package and find_spec(package) is None:
        raise UsageError(
            f"sink {operator.id} writes to {title}, and {package} is not installed",
            hint=f"pip install 'abscli[{type}]'",
        )
