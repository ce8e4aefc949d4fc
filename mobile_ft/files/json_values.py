"""Typed values of a JSON object. null counts as missing. All functions raise ValueError for another type."""

import sys
from typing import Any

Values = dict[str, Any]

_MOST = (1 << 31) - 1  # limit of a count


def positive_int(values: Values, key: str, default: int | None = None, most: int = _MOST) -> int:
    value = values.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise ValueError(f"{key} is {value!r}; it must be a positive integer, at most {most}")
    return value


def positive_number(values: Values, key: str, default: float | None = None) -> float:
    value = values.get(key)
    if value is None:
        value = default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{key} is {value!r}; it must be a positive number")
    return float(value)


def boolean(values: Values, key: str) -> bool:
    value = values.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; it must be true or false")
    return value


def json_object(values: Values, key: str) -> Values:
    """Returns {} if the key is missing."""
    value = values.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {value!r}; it must be an object")
    return value


def integers(values: Values, key: str, most: int) -> list[int]:
    """Returns a list of integers from 0 to `most`."""
    items = values.get(key)
    if not isinstance(items, list) or any(type(x) is not int or not 0 <= x <= most for x in items):
        raise ValueError(f"{key} must be a list of integers from 0 to {most}")
    return items
