"""The values of a query, read as JavaScript reads them."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec

if TYPE_CHECKING:
    from msgspec import Struct
    from starlette.datastructures import QueryParams

_MAX_EXACT = 1 << 53
"""Below it, every whole number has an exact float."""
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,12}", re.IGNORECASE)
_FALSE = ("", "0", "false")


def query_values(parameters: QueryParams) -> dict[str, str | list[str]]:
    """Return the parameters of a query; the values of one that is repeated are a list."""
    values = {name: parameters.getlist(name) for name in parameters}
    return {name: several if len(several) > 1 else several[0] for name, several in values.items()}


def as_javascript_reads(query: type[Struct], values: dict[str, str | list[str]]) -> dict[str, Any]:
    """Return the values of a query with numbers and switches as JavaScript reads them from text."""
    scalars = _scalar_fields(query)
    return {name: _scalar(name, value, scalars[name]) if name in scalars else value for name, value in values.items()}


@cache
def _scalar_fields(query: type[Struct]) -> dict[str, type]:
    """Return the fields of a query that are numbers or switches, each with its type."""
    fields = {field.encode_name: {field.type, *get_args(field.type)} for field in msgspec.structs.fields(query)}
    for name, types in fields.items():
        fields[name] = types.union(*(get_args(kind) for kind in types))
    kinds = ((name, kind) for kind in (float, int, bool) for name, types in fields.items() if kind in types)
    return dict(kinds)


def _scalar(name: str, value: str | list[str], kind: type) -> bool | float:
    if kind is bool:
        return value not in _FALSE
    text = value.strip() if isinstance(value, str) else "several"
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not text and kind is float:
        number = 0.0
    if not math.isfinite(number):
        raise msgspec.ValidationError(f"Expected `number`, got `{text}` - at `$.{name}`")
    return int(number) if number.is_integer() and abs(number) < _MAX_EXACT else number
