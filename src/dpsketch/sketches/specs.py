"""What every spec shares: a fingerprint of its public fields, and the refusal to merge two that differ."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self

from dpsketch.core.codec import decode, encode
from dpsketch.core.move import Sensitivity
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.privacy import Guarantee, Unit

__all__ = [
    "ReleasePreview",
    "Sensitivity",
    "Spec",
    "StoredSpec",
    "UnitSpec",
    "check_key_type",
    "fingerprint_of",
    "hold_key_columns",
    "refuse_choice",
    "refuse_mismatch",
    "stated_unit",
    "with_key_columns",
]


class Spec(Protocol):
    """All that two sketches must share to merge; public."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values."""
        ...


class UnitSpec(Spec, Protocol):
    """A spec that says whose presence a release hides."""

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A spec that is written as its fields are (:mod:`dpsketch.core.codec`)."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values."""
        values: dict[str, Any] = encode(self)
        return values

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild a spec from :meth:`to_json`."""
        spec: Self = decode(value, cls)
        return spec


@dataclass(frozen=True, slots=True)
class ReleasePreview:
    """What a release would promise and be worth, known before anything is read or spent."""

    guarantee: Guarantee
    noise_scale: float
    predicted_error: float


def fingerprint_of(spec: Spec) -> str:
    """Return 16 hexadecimal digits that name a spec."""
    text = json.dumps(spec.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refuse_mismatch(ours: Spec, theirs: Spec, action: str = "merge") -> None:
    """Raise :class:`SpecMismatch`, naming the fields, unless two specs are equal."""
    a, b = ours.to_json(), theirs.to_json()
    if type(ours) is not type(theirs):
        raise SpecMismatch(f"cannot {action}: a {type(ours).__name__} and a {type(theirs).__name__}.")
    differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    if differing:
        words = ", ".join(f"{name} differs ({_short(a.get(name))} and {_short(b.get(name))})" for name in differing)
        raise SpecMismatch(f"cannot {action}: {words}. Build both sketches from one spec.")


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def stated_unit(unit: Unit | None) -> Unit:
    """Return the unit, which has no default: whoever starts a sketch states it."""
    if unit is None:
        raise InvalidInput("say unit=, whose presence releases hide: dps.per_record() or dps.per_user(max_keys=…).")
    return unit


def refuse_choice(unit: object) -> None:
    """Refuse a unit whose bound is chosen, of a kind whose releases choose none."""
    if isinstance(unit, Unit) and unit.chosen:
        raise InvalidInput(
            "max_keys='auto' lets a release choose the bound, which those of a Histogram without max_counters do; "
            "other kinds choose none: state max_keys=N."
        )


def check_key_type(key_type: object) -> None:
    """Refuse a key type that is not one."""
    if key_type is not None and key_type != "int" and key_type != "text":
        raise InvalidInput("key_type is 'int', 'text' or None.")


def hold_key_columns(spec: Any) -> None:
    """Check the columns of a spec's compound keys, if it has any, and hold them as a tuple."""
    columns = spec.key_columns
    good = isinstance(columns, tuple | list) and all(isinstance(name, str) for name in columns)
    if not good or len(columns) == 1 or len(set(columns)) < len(columns):
        raise InvalidInput("key_columns are the names of two or more different columns; without them a key has one.")
    if columns and spec.key_type == "int":
        raise InvalidInput("a key of several columns is text: leave the key type out, and of heavy say key_bytes=.")
    object.__setattr__(spec, "key_columns", tuple(columns))


def with_key_columns(spec: Any, columns: tuple[str, ...]) -> Any:
    """Return a spec whose keys are text of several columns; refuse one of a kind whose keys have one column."""
    names = {field.name for field in fields(spec)}
    if "key_columns" not in names:
        raise InvalidInput("a key of several columns means nothing to this kind of sketch: name one column.")
    stated = {"key_type": spec.key_type or "text"} if "key_type" in names else {}
    return replace(spec, key_columns=columns, **stated)
