"""A record with a null key counts for nothing, and moves nobody else's weight or user, in every kind."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import ROWS, Row, everything


def with_null(records: Any, given: dict[str, Any], place: int) -> tuple[Any, dict[str, Any]]:
    """The records with one more, whose key is missing, at a place."""
    null = [math.nan, 0.5] if isinstance(records[0], list) else None
    beside = {"users": "nobody", "weights": 4}
    longer = {name: [*values[:place], beside[name], *values[place:]] for name, values in given.items()}
    return [*records[:place], null, *records[place:]], longer


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_null_moves_nothing(row: Row, place: int) -> None:
    records, given = row.batches[0]
    contents = []
    for keys, columns in ((records, given), with_null(records, given, place)):
        with seeded_noise_for_tests_only(7):  # a secret, or the noise of a state, that is the same in both
            sketch = row.start()
        sketch.update(keys, **columns)
        contents.append(everything(sketch)[2])
    assert contents[0] == contents[1]
