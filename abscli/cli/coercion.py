"""Option values without pydantic, which Typer would import for them at twice the cost of Typer itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args, get_origin

import typer
from typer._coercion import RuntimeParam

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})


@dataclass(frozen=True)
class LightParam(RuntimeParam):
    """Coerces what the commands of `abs` use: strings, numbers, flags, enumerations, parsers, and lists of those."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation: Any = self.annotation
        is_list = get_origin(annotation) is list
        kind = get_args(annotation)[0] if is_list else annotation
        one = self._parser(kind)
        try:
            return [one(item) for item in value] if is_list else one(value)
        except ValueError as error:
            raise typer.BadParameter(f"{error}{_origin(param, ctx)}", ctx=ctx, param=param) from None

    def _parser(self, kind: Any) -> Callable[[Any], Any]:
        if self.parameter_info.parser is not None:
            return self.parameter_info.parser
        if kind is int:
            return self._integer
        if kind is bool:
            return _flag
        if isinstance(kind, type) and issubclass(kind, Enum):
            return lambda value: _choice(value, kind)
        return str

    def _integer(self, value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        low, high = self.parameter_info.min, self.parameter_info.max
        if low is not None and number < low:
            raise ValueError(f"{number} is below {low}, the least that is allowed")
        if high is not None and number > high:
            raise ValueError(f"{number} is above {high}, the most that is allowed")
        return number


def lighten(params: Sequence[Any]) -> None:
    """Gives every parameter the light coercion, before Typer builds its own at first use."""
    for param in params:
        descriptor = param.type_descriptor
        param._runtime_param = LightParam(
            parameter_info=descriptor.parameter_info, annotation=descriptor.annotation
        )
        if param.type_descriptor.is_ranged and not getattr(param, "count", False):
            param.min = param.max = None  # said in words; `x>=1` in a help text is not


def _choice(value: Any, kind: type[Enum]) -> Enum:
    if isinstance(value, kind):
        return value
    for member in kind:
        if member.value == value:
            return member
    known = [str(member.value) for member in kind]
    raise ValueError(f"{value!r} is none of {', '.join(known)}")


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def _origin(param: Any, ctx: Any) -> str:
    """`` (from ABS_OUTPUT)`` where the value came from the environment."""
    source = ctx.get_parameter_source(param.name) if ctx is not None else None
    if source is None or source.name != "ENVIRONMENT":
        return ""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    names.append(f"{ctx.auto_envvar_prefix}_{param.name.upper()}")
    return f" (from {next((name for name in names if os.environ.get(name)), names[-1])})"
