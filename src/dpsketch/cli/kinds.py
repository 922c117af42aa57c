"""From the stated options of a kind to its empty sketch, and to the arguments of its release.

Most kinds take their options as their constructor does. A kind has a function here if its options are texts to be read,
or choose between two sketches.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.options import flag_of, read_lines
from dpsketch.errors import InvalidInput, SourceError

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit
    from dpsketch.sketches.kinds import Kind

__all__ = ["listed_shares", "release_arguments", "start"]

_PIPES: dict[Path, list[list[str]]] = {}
_DENSITY_ROWS, _DENSITY_WAVES = 500, 1000
_SERIES_DIMS = 3
_MOMENT_SIZE = 200
_KERNELS = {"race": "euclidean", "linear": "linear", "signs": "angular"}  # of features; others are of a Gaussian


def start(kind: Kind, unit: Unit, given: dict[str, Any], columns: tuple[str, ...], key_type: KeyType | None) -> Any:
    """Start an empty sketch of a kind.

    Parameters
    ----------
    kind, unit
        Which sketch, for which unit.
    given : dict
        Those of the kind's options that were stated.
    columns : tuple of str
        The names of a point's coordinates, where the kind counts points.
    key_type : {"int", "text"} or None
        The type of keys, if it was stated.
    """
    match kind.name:
        case "histogram":
            return _histogram(unit, given, key_type)
        case "moment":
            return _moment(unit, given, key_type)
        case "distinct":
            return _distinct(unit, given, key_type)
        case "ranges":
            return _ranges(unit, given)
        case "density":
            return _density(unit, given, columns)
    states = key_type is not None and any(field.name == "key_type" for field in fields(kind.spec))
    return kind.sensitive(unit=unit, **({"key_type": key_type} if states else {}), **given)


def release_arguments(kind: Kind, spec: Any, given: dict[str, Any], key_type: KeyType | None) -> dict[str, Any]:
    """Return the arguments of ``release``: files are read, and their keys and groups have the types of the spec."""
    from dpsketch.laws.thresholds import FORMS
    from dpsketch.laws.votes import VOTE_FORMS
    from dpsketch.release import typed_keys

    arguments, votes = dict(given), kind.name == "histogram-votes"
    forms = VOTE_FORMS if votes else FORMS
    if "form" in given and given["form"] not in forms:
        raise InvalidInput(f"--form is one of {', '.join(forms)}{' with --max-counters' if votes else ''}.")
    if (path := arguments.pop("keys_from", None)) is not None:
        lines = read_lines(path)
        arguments["keys"] = typed_keys(lines, spec.key_type, None if spec.key_type else key_type, spec.key_columns)
    if "groups" in arguments:
        arguments["groups"] = _groups(arguments["groups"], spec)
    return arguments


def _groups(path: Path, spec: Any) -> list[Any]:
    """Read a public list of groups."""
    columns = _listed_columns(path, tuple(spec.by))
    if len(columns) > 1:
        return list(zip(*columns, strict=True))
    try:
        return [int(name) for name in columns[0]] if spec.key_type == "int" else list(columns[0])
    except ValueError:
        raise InvalidInput(f"{path}: the groups are whole numbers, and the list has another entry.") from None


def _listed_columns(path: Path, names: tuple[str, ...]) -> list[list[str]]:
    """Read the columns of a public list. A pipe can be read once, and a command asks twice."""
    if path not in _PIPES:
        columns = [read_lines(path)] if len(names) == 1 and path.suffix.lower() != ".csv" else _csv_columns(path, names)
        if not path.is_fifo():
            return columns
        _PIPES[path] = columns
    return _PIPES[path]


def _csv_columns(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Read columns of a CSV file as text."""
    problem = ""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows or all(name in rows[0] for name in names):
            columns = [[row[name] for row in rows] for name in names]
            if all(isinstance(each, str) for column in columns for each in column):
                return columns
            problem = f"{path} has rows that are too short."
        else:
            problem = f"{path} is a public list of groups: its first line names the columns {', '.join(names)}."
    except (UnicodeDecodeError, csv.Error):
        problem = f"{path} is not CSV in UTF-8."
    except (FileNotFoundError, IsADirectoryError):
        problem = f"{path} is not a file."
    raise SourceError(problem)


def _histogram(unit: Unit, given: dict[str, Any], key_type: KeyType | None) -> Any:
    from dpsketch.sketches.histogram import Histogram, VoteHistogram

    if "max_counters" not in given:
        # A seed may have been drawn before it was known that nothing would be hashed.
        shape = {name: value for name, value in given.items() if name != "seed"}
        return Histogram(**shape, unit=unit, key_type=key_type)
    for name in ("memory_limit", "temp_directory", "grid"):
        if name in given:
            raise InvalidInput(f"--max-counters bounds the memory, and each key counts once: drop {flag_of(name)}.")
    return VoteHistogram(**given, unit=unit, key_type=key_type)


def _moment(unit: Unit, given: dict[str, Any], key_type: KeyType | None) -> Any:
    from dpsketch.sketches.moment import MomentProfile, MomentSketch

    shape = {"size": _MOMENT_SIZE, "key_type": key_type, **given}
    exponents = shape.pop("p", ())
    if not exponents:
        raise InvalidInput("say which moment: --p 0.5, or several by repeating --p.")
    if len(exponents) == 1:
        return MomentSketch(p=exponents[0], **shape, unit=unit)
    return MomentProfile(p=list(exponents), **shape, unit=unit)


def _distinct(unit: Unit, given: dict[str, Any], key_type: KeyType | None) -> Any:
    from dpsketch.sketches.distinct import DistinctSet, DistinctSketch

    shape = dict(given)
    if not shape.pop("exact", False):
        return DistinctSketch(**shape, unit=unit, key_type=key_type)
    if "buckets" in shape:
        raise InvalidInput("an exact count has no bitmap: drop --buckets, or --exact.")
    return DistinctSet(unit=unit, key_type=key_type)


def _ranges(unit: Unit, given: dict[str, Any]) -> Any:
    from dpsketch.sketches.quantiles import QuantileSketch
    from dpsketch.sketches.ranges import RangeSketch

    if "quantiles" not in given:
        if "interval_share" in given:
            raise InvalidInput("--interval-share goes with --quantiles: the intervals of a tree cost nothing.")
        return RangeSketch(**given, unit=unit)
    for name in ("rows", "width"):
        if name in given:
            raise InvalidInput(f"--{name} shapes the tree that answers any question: drop it, or --quantiles.")
    return QuantileSketch(**{**given, "quantiles": listed_shares(given["quantiles"])}, unit=unit)


def listed_shares(text: str) -> list[Fraction]:
    """Read the quantiles of an option, as in 0.5,0.9."""
    try:
        return [Fraction(one.strip()) for one in text.split(",")]
    except (ValueError, ZeroDivisionError):
        pass
    raise InvalidInput("--quantiles takes numbers between 0 and 1, as in 0.5,0.9.")


def _density(unit: Unit, given: dict[str, Any], columns: tuple[str, ...]) -> Any:
    from dpsketch import kernels
    from dpsketch.sketches.density import DensitySketch

    shape = dict(given)
    bounds = _bounds(shape.pop("bounds", None))
    features = shape.pop("features", None)
    if features == "auto":
        features = "series" if bounds is not None and len(columns) <= _SERIES_DIMS else "race"
    name = shape.pop("kernel", None) or _KERNELS.get(features, "gaussian" if features else "euclidean")
    parameters: dict[str, Any] = {"dim": len(columns)}
    if "bandwidth" in shape:
        parameters["bandwidth"] = shape.pop("bandwidth")
    elif name in ("euclidean", "manhattan", "gaussian"):
        raise InvalidInput("say how far a point reaches: --bandwidth, in the units of the columns.")
    if "power" in shape or features == "signs":
        parameters["power"] = shape.pop("power", 1)
    if features in (None, "race", "fourier", "signs"):
        shape.setdefault("rows", _DENSITY_ROWS if features in (None, "race") else _DENSITY_WAVES)
    kernel = kernels.named(name, **parameters)
    return DensitySketch(kernel=kernel, **shape, unit=unit, bounds=bounds, columns=columns, features=features)


def _bounds(text: str | None) -> list[tuple[float, float]] | None:
    """Read public bounds such as 0:10,-5:5."""
    if text is None:
        return None
    try:
        pairs = [(float(low), float(high)) for low, high in (part.split(":") for part in text.split(","))]
    except ValueError:
        raise InvalidInput("--bounds are pairs low:high, one for each column, as in 0:10,-5:5.") from None
    return pairs
