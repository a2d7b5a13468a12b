"""Check that the package that a sink writes with is installed."""

from __future__ import annotations

from abscli.engine.errors import UsageError
from formats.job.model import Kind, Operator
from formats.packages import PACKAGES, install_command, is_installed

_NEEDS = {"delta": "deltalake", "iceberg": "pyiceberg"}
"""The package of a sink by the type of the sink."""


def require_package(operator: Operator) -> None:
    """Raise UsageError if the package that a sink writes with is not installed."""
    kind = (operator.connector or {}).get("type") if operator.kind is Kind.SINK else None
    module = _NEEDS.get(kind) if isinstance(kind, str) else None
    if module is not None and not is_installed(module):
        package = PACKAGES[module]
        raise UsageError(
            f"sink {operator.id}: {package.purpose} needs the package {package.name}, which is not installed",
            hint=install_command(module),
        )
