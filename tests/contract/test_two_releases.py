"""Two releases of one sketch, jointly: the second has nothing of the first but the data, whatever kind it is.

All that a release draws comes from one source of bits. With the same bits a release comes out the same, also after
another one that had other bits. So the second of two releases is a function of the data and of its own bits; these are
fresh (:mod:`tests.unit.test_noise`), and what two releases tell together is what their costs add up to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsketch.audit.sampled import PROTOCOLS
from dpsketch.errors import ReleaseRefused
from dpsketch.noise import RoundedGaussian, seeded_noise_for_tests_only
from sensitive import ROWS, Row, copied

# What is published of a stream, or of a memory that may be seized, goes on from what was published before: its laws
# are held in their own tests. A moment's secret is drawn once, and its release ends it.
GOES_ON = {"continual", "continual histogram", "pan-private"}
ENDS = {"moment", "moments"}
AGAIN = [row for row in ROWS if row.name not in GOES_ON and row.name.split()[0] not in ENDS]


def published(row: Row, sketch: Any, seed: int) -> dict[str, Any]:
    """What a release with these bits shows, part by part."""
    with seeded_noise_for_tests_only(seed):
        # So few records pass a threshold only where δ is large.
        release = sketch.release(epsilon=0.5, delta=0.4) if sketch.kind.startswith("histogram") else row.publish(sketch)
    document = release.to_document()
    parts = {name: np.asarray(array).tolist() for name, array in document.arrays.items()}
    return parts | {name: value for name, value in document.header.items() if name not in ("guarantee", "charge")}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", AGAIN, ids=lambda row: row.name)
def test_a_second_release_has_nothing_of_the_first(row: Row) -> None:
    sketch = row.filled(0, 1)
    first, second = published(row, sketch, 1), published(row, sketch, 2)
    assert second == published(row, row.filled(0, 1), 2)
    assert first == published(row, row.filled(0, 1), 1)
    assert first != second


@pytest.mark.parametrize("row", [row for row in ROWS if row.name.split()[0] in ENDS], ids=lambda row: row.name)
def test_where_a_release_ends_the_sketch_there_is_no_second(row: Row) -> None:
    """Nor of a copy."""
    sketch = row.filled(0)
    copy = copied(sketch)
    row.publish(sketch)
    for again in (sketch, copy):
        with pytest.raises(ReleaseRefused):
            row.publish(again)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_second_report_has_nothing_of_the_first(name: str) -> None:
    make, held, _ = PROTOCOLS[name]

    def reported(protocol: Any, seed: int) -> Any:
        with seeded_noise_for_tests_only(seed):
            return protocol.report([held] * 50).to_pylist()

    protocol = make(1.0)
    first, second = reported(protocol, 1), reported(protocol, 2)
    assert second == reported(make(1.0), 2)
    assert first != second


def test_noise_that_is_kept_for_the_next_release_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[Any, Any] = {}
    drawn = RoundedGaussian.sample
    monkeypatch.setattr(RoundedGaussian, "sample", lambda law, size: kept.setdefault((law, size), drawn(law, size)))
    row = next(row for row in AGAIN if row.name == "counts record")
    with pytest.raises(AssertionError):
        test_a_second_release_has_nothing_of_the_first(row)
