"""What every spec shares: a fingerprint of its public fields, and the refusal to merge two that differ."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Guarantee, Unit

__all__ = [
    "ReleasePreview",
    "Sensitivity",
    "Spec",
    "StoredSpec",
    "UnitSpec",
    "check_key_type",
    "fingerprint_of",
    "refuse_mismatch",
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
    """A spec that is written as its fields are: numbers, text, and a unit."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.to_json() if isinstance(value, Unit) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild a spec from :meth:`to_json`."""
        return cls(**{**value, "unit": Unit.from_json(value["unit"])})


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one unit can move a sketch's integer table, in the L1 and L2 norms (upper bounds)."""

    l1: int
    l2: float

    def __post_init__(self) -> None:
        hold_whole(self, "l1", low=0)
        hold_real(self, "l2")


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
    differing = [name for name in a if a[name] != b.get(name)]
    if differing:
        words = ", ".join(f"{name} differs ({_short(a[name])} and {_short(b.get(name))})" for name in differing)
        raise SpecMismatch(f"cannot {action}: {words}. Build both sketches from one spec.")


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def check_key_type(key_type: object) -> None:
    """Refuse a key type that is not one."""
    if key_type is not None and key_type != "int" and key_type != "text":
        raise InvalidInput("key_type is 'int', 'text' or None.")
