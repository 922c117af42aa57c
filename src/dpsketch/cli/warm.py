"""Compile beforehand what commands compile when they first need it, which takes longer than most of them.

Small made-up inputs go the ways that people's do, through files, so that what is compiled is what is called later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpsketch.cli.output import say

__all__ = ["compile_all"]

_BUDGET = {"epsilon": 1.0, "delta": 1e-6}
_PAGES = [f"/page/{number % 50}" for number in range(2_000)]
_NUMBERS = list(range(2_000))


def compile_all() -> None:
    """Compile, with a line on standard error for each step."""
    import numba  # from here on nothing is computed without the compiler

    steps: dict[str, Callable[[Path], None]] = {
        "counts": _counts,
        "counts of users": _counts_of_users,
        "joint decoding": _decoding,
        "trees of prefixes": _trees,
        "ranges": _ranges,
        "histograms": _histograms,
        "distinct counts": _distinct,
    }
    with TemporaryDirectory() as folder:
        for done, (what, step) in enumerate(steps.items()):
            say(f"Compiling, {done + 1} of {len(steps)}: {what} …")
            step(Path(folder) / "warm.dps")
    say(f"Compiled for this machine (numba {numba.__version__}). Commands that need it load it from now on.")


def _loaded(sketch: Any, path: Path) -> Any:
    """Return a release of a sketch as a command has it: from a file."""
    from dpsketch.kinds import load

    sketch.release(**_BUDGET).save(path)
    return load(path)


def _counted(path: Path, **spec: Any) -> Any:
    """Return a release of counts; pages are a column as a file's are."""
    import pyarrow as pa

    import dpsketch as dps

    sketch = dps.CountSketch(unit=dps.per_record(), rows=7, width=4096, **spec)
    sketch.update(pa.array(_PAGES))
    return _loaded(sketch, path)


def _counts(path: Path) -> None:
    import numpy as np

    import dpsketch as dps

    release = _counted(path)
    for estimator in ("robust", "median"):
        release.estimate(_PAGES[:5], estimator=estimator)
    numbers = dps.CountSketch(unit=dps.per_record(), rows=7, width=4096)
    numbers.update(np.array(_NUMBERS))
    _loaded(numbers, path).estimate([1])


def _counts_of_users(path: Path) -> None:
    import pyarrow as pa

    import dpsketch as dps

    sketch = dps.CountSketch(unit=dps.per_user(max_keys=2), rows=7, width=4096)
    sketch.update(pa.array(_PAGES), users=pa.array([f"v{number // 5}" for number in _NUMBERS]))
    _loaded(sketch, path).estimate(["/page/1"])


def _decoding(path: Path) -> None:
    release = _counted(path)
    for pages in (sorted(set(_PAGES)), _PAGES[:1]):  # numba has a type of its own for tables of one line
        release.decode(pages)


def _trees(path: Path) -> None:
    import numpy as np
    import pyarrow as pa

    import dpsketch as dps

    texts = dps.HeavyHitters(unit=dps.per_record(), key_bytes=12)
    texts.update(pa.array(_PAGES))
    _loaded(texts, path).top(5)
    numbers = dps.HeavyHitters(unit=dps.per_record(), key_bits=32)
    numbers.update(np.array(_NUMBERS) % 10)
    _loaded(numbers, path).top(5)


def _ranges(path: Path) -> None:
    import numpy as np

    import dpsketch as dps

    sketch = dps.RangeSketch(unit=dps.per_record(), bits=24)
    sketch.update(np.array(_NUMBERS))
    _loaded(sketch, path).quantile(0.5)


def _histograms(path: Path) -> None:
    import pyarrow as pa

    import dpsketch as dps

    sketch = dps.Histogram(unit=dps.per_record())
    sketch.update(pa.array(_PAGES))
    _loaded(sketch, path).top(5)


def _distinct(path: Path) -> None:
    import pyarrow as pa

    import dpsketch as dps

    sketch = dps.DistinctSketch(unit=dps.per_record())
    sketch.update(pa.array(_PAGES))
    sketch.release(epsilon=1.0, delta=0).save(path)
