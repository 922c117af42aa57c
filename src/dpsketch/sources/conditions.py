"""Conditions that compare columns of text with constants, computed on Arrow's arrays: most that people ask of a CSV.

DuckDB answers every condition (:mod:`dpsketch.sources.expressions`), but has to be handed the rows and to hand them
back. Those here it need not see: comparisons of a column with a text or a number, ``in``, ``between``, ``is null``, and
``and``, ``or``, ``not`` of them. Their answers are DuckDB's to the last row. What could be read in two ways is not
tried here: a number with more than 15 digits or an exponent in the condition, a column that is compared with both text
and numbers, or a field that should be a number and has any character but digits, a point and a minus.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from dpsketch.compound import text_scalar
from dpsketch.lazy import arrow_compute as pc

__all__ = ["PlainCondition", "plain_condition"]

_DIGITS = b"0123456789.-"
_EXACT = 15  # so many digits are a float's own: a whole number and a power of ten, both exact, divided once

# Functions of Arrow by what DuckDB calls a comparison.
_COMPARED = {
    "COMPARE_EQUAL": "equal",
    "COMPARE_NOTEQUAL": "not_equal",
    "COMPARE_LESSTHAN": "less",
    "COMPARE_LESSTHANOREQUALTO": "less_equal",
    "COMPARE_GREATERTHAN": "greater",
    "COMPARE_GREATERTHANOREQUALTO": "greater_equal",
}
_MIRRORED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}


@dataclass(frozen=True, slots=True)
class _Comparison:
    column: str
    relation: str
    value: str | float


@dataclass(frozen=True, slots=True)
class _Missing:
    column: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class _Not:
    test: _Test


@dataclass(frozen=True, slots=True)
class _All:
    tests: tuple[_Test, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    tests: tuple[_Test, ...]


_Test = _Comparison | _Missing | _Not | _All | _Any


@dataclass(frozen=True, slots=True)
class PlainCondition:
    """A condition of the kind that this module computes: rows are kept for which all of its tests are true."""

    tests: tuple[_Test, ...]

    def rows(self, batch: Any, names: Collection[str]) -> Any:
        """Return the rows of a batch of text for which the condition is true, or None where DuckDB has to say.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Columns of text.
        names : collection of str
            The columns wanted of them.
        """
        kept = None  # the places of the rows for which all tests so far are true
        for test in self.tests:
            held = batch.select(dict.fromkeys(_columns(test)))
            try:
                true = _truth(test, held if kept is None else held.take(kept))
            except _NoPlainNumberError:
                return None
            kept = pc.indices_nonzero(true) if kept is None else kept.filter(true)
        return batch.select([name for name in batch.schema.names if name in names]).take(kept)


class _NoPlainNumberError(Exception):
    """A field is compared with a number, and is not one that every reader reads alike."""


def plain_condition(tree: Any, numbers: Collection[str]) -> PlainCondition | None:
    """Return what DuckDB's tree of a condition says, None if it is not of this kind.

    Parameters
    ----------
    tree : dict
        An expression over the columns of one row.
    numbers : collection of str
        The columns that it reads as numbers.
    """
    test = _test(tree, numbers)
    if test is None:
        return None
    tests = test.tests if isinstance(test, _All) else (test,)
    # Text is compared faster than numbers are read, and is asked first.
    return PlainCondition(tuple(sorted(tests, key=lambda each: any(name in numbers for name in _columns(each)))))


def _test(node: Any, numbers: Collection[str]) -> _Test | None:
    match node:
        case {"class": "CONJUNCTION", "type": kind, "children": children}:
            tests = [_test(child, numbers) for child in children]
            known = tuple(test for test in tests if test is not None)
            return None if len(known) < len(tests) else _All(known) if kind == "CONJUNCTION_AND" else _Any(known)
        case {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": [child]}:
            test = _test(child, numbers)
            return None if test is None else _Not(test)
        case {"class": "OPERATOR", "type": "OPERATOR_IS_NULL", "children": [{"column_names": [name]}]}:
            return _Missing(name, name in numbers)
        case {"class": "OPERATOR", "type": "OPERATOR_IS_NOT_NULL", "children": [{"column_names": [name]}]}:
            return _Not(_Missing(name, name in numbers))
        case {"class": "OPERATOR", "type": "COMPARE_IN", "children": [{"column_names": [_]} as column, *listed]}:
            return _each(_Any, [_comparison(column, "COMPARE_EQUAL", value, numbers) for value in listed])
        case {"class": "BETWEEN", "input": {"column_names": [_]} as column, "lower": lower, "upper": upper}:
            ends = (("COMPARE_GREATERTHANOREQUALTO", lower), ("COMPARE_LESSTHANOREQUALTO", upper))
            return _each(_All, [_comparison(column, relation, end, numbers) for relation, end in ends])
        case {"class": "COMPARISON", "type": relation, "left": {"column_names": [_]} as column, "right": value}:
            return _comparison(column, relation, value, numbers)
        case {"class": "COMPARISON", "type": relation, "left": value, "right": {"column_names": [_]} as column}:
            return _comparison(column, _MIRRORED.get(relation, relation), value, numbers)
        case _:
            return None


def _each(of: type[_All] | type[_Any], tests: list[_Comparison | None]) -> _Test | None:
    known = tuple(test for test in tests if test is not None)
    return of(known) if len(known) == len(tests) else None


def _comparison(column: Any, relation: str, value: Any, numbers: Collection[str]) -> _Comparison | None:
    name, constant = column["column_names"][0], _constant(value)
    if relation not in _COMPARED or constant is None or isinstance(constant, float) != (name in numbers):
        return None
    return _Comparison(name, relation, constant)


def _constant(node: Any) -> str | float | None:
    match node:
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
            return text
        case {"class": "CONSTANT", "literal": {"kind": "INTEGER" | "NUMERIC", "text": str(text)}}:
            plain = re.fullmatch(r"-?([0-9]+)\.?([0-9]*)", text)
            return float(text) if plain and len(plain[1] + plain[2]) <= _EXACT else None
        case _:
            return None


def _columns(test: _Test) -> tuple[str, ...]:
    match test:
        case _Comparison() | _Missing():
            return (test.column,)
        case _Not():
            return _columns(test.test)
        case _All() | _Any():
            return tuple(name for each in test.tests for name in _columns(each))
        case _:
            assert_never(test)


def _truth(test: _Test, batch: Any) -> Any:
    """Return true, false or null of each row, as SQL has them."""
    match test:
        case _Comparison(column, relation, value):
            held, compared = batch.column(column), getattr(pc, _COMPARED[relation])
            if isinstance(value, str):
                return compared(held, text_scalar(value, pa.string()))
            return compared(_numbers(held), _number_scalar(value))
        case _Missing(column, number):
            return (_numbers(batch.column(column)) if number else batch.column(column)).is_null()
        case _Not():
            return pc.invert(_truth(test.test, batch))
        case _All() | _Any():
            joined = pc.and_kleene if isinstance(test, _All) else pc.or_kleene
            found, *others = [_truth(each, batch) for each in test.tests]
            for other in others:
                found = joined(found, other)
            return found
        case _:
            assert_never(test)


def _numbers(column: Any) -> Any:
    """Return a column of text as floats."""
    _, offsets, data = column.buffers()
    if data is not None:
        start, end = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]].tolist()
        if data.slice(start, end - start).to_pybytes().translate(None, _DIGITS):
            raise _NoPlainNumberError
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        raise _NoPlainNumberError from None


def _number_scalar(value: float) -> Any:
    return pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(struct.pack("d", value))])[0]  # without pandas
