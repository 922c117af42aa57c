"""Numbers as arguments: from Python or NumPy, checked, and kept as Python's own.

NumPy's integers wrap where Python's do not: a bound on a sensitivity multiplied in 64 bits can come out too small, and
noise with it. So nothing keeps a number as it was given. Whole numbers pass through :func:`whole_number`, others
through :func:`real_number`; a frozen dataclass uses :func:`hold_whole` and :func:`hold_real` in its ``__post_init__``.
"""

from __future__ import annotations

import math
import operator
from numbers import Integral, Real
from typing import Any

from dpsketch.errors import InvalidInput

__all__ = [
    "hold_real",
    "hold_whole",
    "number_text",
    "positive_number",
    "probability",
    "real_number",
    "typed_number",
    "whole_number",
]


def whole_number(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return a whole number within its range, if there is one, as an ``int``, or refuse it.

    Examples
    --------
    >>> import numpy as np
    >>> whole_number("rows", np.int64(5), low=1) * 2**62
    23058430092136939520
    """
    try:
        number = None if isinstance(value, bool) else int(operator.index(value))
    except TypeError:
        number = None
    if number is None:
        raise InvalidInput(f"{name} must be a whole number, not {type(value).__name__}.")
    if (low is not None and number < low) or (high is not None and number > high):
        wanted = f"be a whole number of at least {low}" if high is None else f"lie between {low} and {high}"
        raise InvalidInput(f"{name} must {wanted}, not {number}.")
    return number


def real_number(name: str, value: Any) -> float:
    """Return a number as Python's own, or refuse what is none: booleans, complex numbers, text, NaN.

    A whole number stays an ``int``, so that it is written to files as it was stated; it must lie in the range of a
    64-bit float. Infinity is a number here: whoever needs a finite one says so.

    Examples
    --------
    >>> import numpy as np
    >>> real_number("grid", np.float32(0.5)), real_number("grid", np.int64(1))
    (0.5, 1)
    """
    if isinstance(value, bool) or not isinstance(value, float | int | Real):  # the usual two are told at once
        raise InvalidInput(f"{name} must be a number, not {type(value).__name__}.")
    if not isinstance(value, float) and isinstance(value, int | Integral):
        whole = int(value)
        if whole.bit_length() > 1023:
            raise InvalidInput(f"{name} must be in the range of 64-bit floats.")
        return whole
    number = float(value)
    if math.isnan(number):
        raise InvalidInput(f"{name} must be a number, not NaN.")
    return number


def probability(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1 as a ``float``, or refuse it."""
    number = real_number(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name} must lie between 0 and 1, not {number!r}.")
    return float(number)


def positive_number(name: str, value: Any) -> float:
    """Return a positive number as a ``float``, or refuse it."""
    number = float(real_number(name, value))
    if not number > 0:
        raise InvalidInput(f"{name} must be positive, not {number!r}.")
    return number


def hold_whole(
    holder: object, name: str, *, low: int | None = None, high: int | None = None, optional: bool = False
) -> None:
    """Replace a field of a frozen dataclass by its :func:`whole_number`; an optional one may be None."""
    value = getattr(holder, name)
    if not (optional and value is None):
        object.__setattr__(holder, name, whole_number(name, value, low=low, high=high))


def hold_real(holder: object, *names: str, optional: bool = False) -> None:
    """Replace fields of a frozen dataclass by their :func:`real_number`; optional ones may be None."""
    for name in names:
        value = getattr(holder, name)
        if not (optional and value is None):
            object.__setattr__(holder, name, real_number(name, value))


def number_text(value: float) -> str:
    """Return an estimate as it is shown to people: whole from 100 on, three significant digits below, – for NaN.

    Examples
    --------
    >>> number_text(12345.6), number_text(12), number_text(1.23456), number_text(float("inf"))
    ('12,346', '12', '1.23', 'inf')
    """
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value, 0) else f"{value:.3g}"


def typed_number(value: float) -> str:
    """Return a number as people type it into a command: as short as reads back to the very same number.

    A command that rounded ε up would spend more than it was said to.

    Examples
    --------
    >>> typed_number(1.0), typed_number(1e-6), typed_number(0.12345678), typed_number(2.5e-7), typed_number(0)
    ('1', '1e-6', '0.12345678', '2.5e-7', '0')
    """
    mantissa, _, exponent = repr(float(value)).partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa.removesuffix(".0")
