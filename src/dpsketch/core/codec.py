"""One codec for every frozen value that a file holds: specs, units, budgets, laws, noises, designs.

A value is written as its dataclass fields, with the name of its class under ``"type"``. Reading trusts nothing: the
class must be registered and be of the field's type, all fields must be there and no others, and each must have its
type. The class then checks its values in ``__post_init__``, as for any caller.
"""

from __future__ import annotations

import re
import types
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpsketch.errors import DpsketchError, FileRefused

__all__ = ["decode", "encode", "stored"]

T = TypeVar("T")

_CLASSES: dict[str, type] = {}
_LONGEST_FRACTION = 64
# The integers that a header takes; the square of a large weight is beyond them, and is written as text.
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_LONG_INTEGER = re.compile(r"-?[1-9][0-9]{18,63}")


def stored(cls: type[T]) -> type[T]:
    """Let values of a dataclass be written and read."""
    known = _CLASSES.setdefault(cls.__name__, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two stored classes are called {cls.__name__}.")
    _CLASSES[cls.__name__] = cls
    return cls


@lru_cache(maxsize=256)
def _hints(cls: Any) -> dict[str, Any]:
    found = get_type_hints(cls)
    return {each.name: found[each.name] for each in fields(cls) if each.init}


def encode(value: Any, hint: Any = None) -> Any:
    """Return a value as JSON-ready values. A number of a float field is written as a float."""
    if is_dataclass(value) and not isinstance(value, type):
        if _CLASSES.get(type(value).__name__) is not type(value):
            raise TypeError(f"{type(value).__name__} is not a stored class.")
        own = {name: encode(getattr(value, name), each) for name, each in _hints(type(value)).items()}
        return {"type": type(value).__name__, **own}
    if isinstance(value, tuple):
        return [encode(each) for each in value]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if hint in (float, float | None):
            return float(value)
        return value if _LEAST <= value <= _MOST else str(value)
    return value


def decode(value: Any, hint: Any) -> Any:
    """Rebuild a value of a type, and refuse anything else.

    Raises
    ------
    FileRefused
        If the value is not of the type, or its class refuses it.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(value, inner)
    if origin is Literal:
        if any(type(value) is type(each) and value == each for each in inner):
            return value
    elif origin is tuple and isinstance(value, list):
        if inner[-1] is ...:
            return tuple(decode(each, inner[0]) for each in value)
        if len(inner) == len(value):
            return tuple(decode(each, one) for each, one in zip(value, inner, strict=True))
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif hint is int and isinstance(value, str) and _LONG_INTEGER.fullmatch(value):
        if not _LEAST <= (number := int(value)) <= _MOST:
            return number
    elif hint is Fraction and isinstance(value, str) and len(value) <= _LONGEST_FRACTION:
        return _built(Fraction, value)
    elif hint in (int, str, bool, type(None)) and type(value) is hint:
        return value
    elif isinstance(value, dict) and isinstance(hint, type):
        return _decode_class(value, hint)
    raise _refusal()


def _decode_union(value: Any, options: tuple[Any, ...]) -> Any:
    for option in options:
        # Only the option that the value claims to be is built, so that its own error is the one that is told.
        if isinstance(option, type) and isinstance(value, dict):
            named = _CLASSES.get(str(value.get("type")))
            if named is None or not issubclass(named, option):
                continue
            return decode(value, option)
        try:
            return decode(value, option)
        except FileRefused:
            continue
    raise _refusal()


def _decode_class(value: dict[str, Any], hint: type) -> Any:
    cls: Any = _CLASSES.get(str(value.get("type")))
    if cls is None or not issubclass(cls, hint):
        raise _refusal()
    hints = _hints(cls)
    if value.keys() - {"type"} != hints.keys():
        raise _refusal()
    return _built(cls, **{name: decode(value[name], own) for name, own in hints.items()})


def _built(cls: Any, *args: Any, **given: Any) -> Any:
    try:
        return cls(*args, **given)
    except FileRefused:
        raise
    except (DpsketchError, ValueError, TypeError, ArithmeticError) as error:
        raise FileRefused(
            f"the file's {cls.__name__} has values that it cannot have ({type(error).__name__})."
        ) from None


def _refusal() -> FileRefused:
    return FileRefused("the file's header is not one that dpsketch writes.")
