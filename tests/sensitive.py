"""One row for every kind of sensitive sketch: how to start one, fill it and end it, and what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch import files
from dpsketch.noise import seeded_noise_for_tests_only

RECORD = dps.per_record(max_weight=4)
USER = dps.per_user(max_keys=2, max_weight=4)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

Records = tuple[Any, dict[str, Any]]


def unit_of(level: str, neighbours: Any = "add_remove", *, keys: int = 2, weight: float = 1.0) -> dps.Unit:
    """Return the unit of a level; records have one key."""
    if level == "user":
        return dps.per_user(max_keys=keys, max_weight=weight, neighbours=neighbours)
    return dps.per_record(max_weight=weight, neighbours=neighbours)


@dataclass(frozen=True)
class Row:
    """A kind at one unit.

    ``batches`` are three calls of ``update`` with records of different users; ``publish`` shows the sketch's content.
    ``frames`` is whether ``update`` takes the columns as one frame.
    """

    name: str
    start: Callable[[], Any]
    batches: tuple[Records, Records, Records]
    publish: Callable[[Any], Any]
    merges: bool = True
    frames: bool = False

    def filled(self, *which: int) -> Any:
        sketch = self.start()
        for each in which:
            self.add(sketch, each)
        return sketch

    def seeded(self, *which: int) -> Any:
        """Fill a sketch whose secret, or noise of a state, is the same each time."""
        with seeded_noise_for_tests_only(7):
            return self.filled(*which)

    def add(self, sketch: Any, which: int) -> None:
        self.give(sketch, *self.batches[which])

    def give(self, sketch: Any, records: Any, given: dict[str, Any]) -> None:
        """Call ``update`` with columns."""
        if self.frames:
            sketch.update(frame_of(records, given))
        else:
            sketch.update(records, **given)

    def partner(self, sketch: Any, which: int) -> Any:
        """A partial that may be merged into a sketch."""
        partial = sketch.empty_day() if isinstance(sketch, dps.ContinualSketch) else sketch.empty_like()
        self.add(partial, which)
        return partial


def frame_of(keys: Any, given: dict[str, Any]) -> pa.Table:
    """Return columns as the frame of a table: its groups, users, and weights as values."""
    named = {"group": keys, "user": given.get("users"), "x": given.get("weights", [1] * len(keys))}
    return pa.table({name: _column(each) for name, each in named.items() if each is not None})


def _column(values: Any) -> Any:
    return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)


def written(sketch: Any) -> bytes:
    """Return a sketch as its file, with the secret that it may have."""
    moments = isinstance(sketch, dps.MomentSketch | dps.MomentProfile)
    data: bytes = sketch.to_sensitive_bytes(**({"include_secret": True} if moments else {}))
    return data


def copied(sketch: Any) -> Any:
    """Return what a reader of its file has."""
    return type(sketch).from_sensitive_bytes(written(sketch))


def everything(sketch: Any) -> tuple[Any, ...]:
    """All that a sensitive sketch holds, but for the ids that tell partials apart: equal content, equal answers."""
    return everything_in(written(sketch))


def everything_in(data: bytes) -> tuple[Any, ...]:
    """The same of a sketch that was written."""
    document = files.decode(data, allow_sensitive=True)
    # The secret of a histogram's hash is drawn for it, and decides nothing.
    arrays = {name: array for name, array in document.arrays.items() if not name.endswith(("partials", "_secret"))}
    return document.kind, document.header, {name: _plain(array) for name, array in arrays.items()}


def _plain(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    return array.dtype.str, array.shape, array.tobytes()


def _release(sketch: Any) -> Any:
    return sketch.release(**BUDGET)


def _pure_release(sketch: Any) -> Any:
    return sketch.release(epsilon=1.0, delta=0.0)


def _keys(user: bool, *, weights: bool = True, text: bool = False) -> tuple[Records, Records, Records]:
    def batch(first: int) -> Records:
        keys: Any = [first, first + 1, first, 3]
        given: dict[str, Any] = {"weights": [1, 2, 3, 4]} if weights else {}
        if user:
            given["users"] = [f"u{first}", f"u{first}", f"v{first}", f"w{first}"]
        return [f"key {key}" for key in keys] if text else keys, given

    return batch(1), batch(5), batch(9)


def _points(user: bool) -> tuple[Records, Records, Records]:
    def batch(first: float) -> Records:
        points = [[first, 0.5], [first + 1, 2.0], [0.25, first]]
        return points, {"users": [f"u{first}", f"u{first}", f"v{first}"]} if user else {}

    return batch(0.0), batch(1.0), batch(2.0)


CELLS: dict[str, Any] = {"kernel": dps.kernels.Euclidean(dim=2, bandwidth=2.0), "rows": 4, "width": 8}
FEATURES: dict[str, dict[str, Any]] = {
    "fourier": {"kernel": dps.kernels.Gaussian(2, 2.0), "rows": 4, "features": "fourier"},
    "series": {"kernel": dps.kernels.Gaussian(2, 9.0), "bounds": (0, 20)},
    "nystrom": {"kernel": dps.kernels.Gaussian(2, 2.0), "landmarks": [[0.5, 1.0], [1.0, 2.0], [3.0, 0.0]]},
    "linear": {"kernel": dps.kernels.Linear(2)},
    "signs": {"kernel": dps.kernels.Angular(2, 1), "rows": 4, "features": "signs"},
}


def _tables() -> list[Row]:
    """Tables: corners, Gaussian columns with names that are found, a public list, and δ = 0."""
    total, mean = dps.sum("x", bounds=(0, 4)), dps.mean("x", bounds=(0, 4))
    many = [dps.count(), dps.users(), dps.sum("x"), dps.mean("x"), dps.quantiles("x", [0.5])]
    list_of_groups = {"groups": ["key 1", "key 3", "nobody"]}

    def row(name: str, level: str, given: dict[str, Any], budget: dict[str, Any], **options: Any) -> Row:
        user = level == "user"
        options |= {"user": "user"} if user else {}
        return Row(
            f"table{name} {level}",
            lambda: dps.Table(by="group", **given, **options),
            _keys(user, text=True),
            lambda sketch: sketch.release(**budget),
            frames=True,
        )

    pure = {"epsilon": 1.0, "delta": 0.0} | list_of_groups
    return [
        row("", "record", {"columns": [dps.count(), total, mean, dps.quantiles("x", [0.5, 0.9], grid=1)]}, BUDGET),
        row(" of a list", "record", {"columns": [dps.sum("x")]}, {"rho": 0.5} | list_of_groups),
        row("", "user", {"columns": many}, BUDGET),
        row(" pure", "user", {"columns": [dps.users(), total, dps.quantiles("x", [0.5])]}, pure, max_keys=2),
    ]


def _table_of(unit: dps.Unit) -> dps.Table:
    user: dict[str, Any] = {"user": "user", "max_keys": unit.max_keys} if unit.level == "user" else {}
    return dps.Table(by="group", columns=[dps.users() if user else dps.count()], **user)


def _rows() -> list[Row]:
    rows = []
    for level, unit in (("record", RECORD), ("user", USER)):
        user = level == "user"
        once = dps.per_user(max_keys=2) if user else dps.per_record()
        keys, unweighted, texts = _keys(user), _keys(user, weights=False), _keys(user, text=True)
        plain = _keys(user, weights=False, text=True)

        def start(make: Callable[..., Any], *, unit: Any = unit, **options: Any) -> Callable[[], Any]:
            return lambda: make(unit=unit, **options)

        rows += [
            Row(f"histogram {level}", start(dps.Histogram), texts, _release),
            Row(f"histogram-votes {level}", start(dps.VoteHistogram, max_counters=16, unit=once), plain, _release),
            Row(f"counts {level}", start(dps.CountSketch, rows=3, width=16), texts, _release),
            Row(f"heavy {level}", start(dps.HeavyHitters, rows=3, width=16, key_bits=12), keys, _release),
            Row(f"ranges {level}", start(dps.RangeSketch, rows=3, width=16, bits=14), keys, _release),
            Row(f"quantiles {level}", start(dps.QuantileSketch, bits=14, quantiles=[0.1, 0.5, 0.9]), keys, _release),
            Row(f"sparse {level}", start(dps.SparseHistogram, domain=2**20, expected_keys=100), keys, _release),
            Row(f"moment {level}", start(dps.MomentSketch, p=0.5, size=20), keys, _pure_release),
            Row(f"moments {level}", start(dps.MomentProfile, p=[0.5, 1], size=20), keys, _pure_release),
            Row(f"distinct {level}", start(dps.DistinctSketch, buckets=16), unweighted, _release),
            Row(f"distinct-set {level}", start(dps.DistinctSet), unweighted, _release),
            *(
                Row(f"density {name} {level}", start(dps.DensitySketch, unit=once, **more), _points(user), _release)
                for name, more in FEATURES.items()
            ),
            Row(f"density {level}", start(dps.DensitySketch, unit=once, **CELLS), _points(user), _release),
        ]
    rows += _tables()
    auto = dps.per_user("auto", max_weight=4)
    rows.append(Row("histogram auto user", lambda: dps.Histogram(unit=auto), _keys(True, text=True), _release))
    sizes = {"rows": 3, "width": 8, "unit": RECORD, "key_type": "int", **BUDGET}

    def days() -> Any:
        return dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="int"), keys=range(9), days=4, **BUDGET)

    for name, begin, publish in (
        ("continual", lambda: dps.ContinualCountSketch(days=4, **sizes), lambda sketch: sketch.publish_day()),
        ("continual histogram", days, lambda sketch: sketch.publish_day()),
        ("pan-private", lambda: dps.PanPrivateCountSketch(**sizes), lambda sketch: sketch.publish()),
    ):
        rows.append(Row(name, begin, _keys(False), publish, merges=False))
    return rows


ROWS = _rows()
# An empty sketch of every kind that can be published day after day, by its unit, and what is counted on a day.
DAILY: dict[str, tuple[Callable[[dps.Unit], Any], Any]] = {
    "histogram": (lambda unit: dps.Histogram(unit=unit, key_type="int"), [1, 2]),
    "counts": (lambda unit: dps.CountSketch(rows=3, width=16, unit=unit, key_type="int"), [1, 2]),
    "heavy": (lambda unit: dps.HeavyHitters(rows=3, width=16, key_bits=12, unit=unit), [1, 2]),
    "density": (lambda unit: dps.DensitySketch(unit=unit, **CELLS), [[0.5, 0.5], [1.0, 2.0]]),
    "ranges": (lambda unit: dps.RangeSketch(bits=6, unit=unit), [1, 2]),
    "table": (_table_of, pa.table({"group": [1, 2], "user": ["ann", "bob"]})),
}
# Public lists, of kinds that need one.
LISTS: dict[str, Any] = {"table": {"keys": [1, 2]}}
MERGING = [row for row in ROWS if row.merges]
