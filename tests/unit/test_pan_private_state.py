"""The state of a pan-private sketch: written, read, and added to by sketches that were filled elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import SpecMismatch
from dpsketch.hashing import fingerprint, text_fingerprints
from ledgers import begun


def pan_private(**more: object) -> dps.ContinualSketch:
    settings = {"rows": 3, "width": 16, "unit": dps.per_record(), "epsilon": 1.0, "delta": 1e-6}
    settings |= {"key_type": "text", **more}
    return dps.PanPrivateCountSketch(**settings)


def test_a_state_goes_on_where_it_was(tmp_path: Path) -> None:
    """The noise is not drawn again, and the guarantee and its price come along."""
    sketch = pan_private(ledger=begun(tmp_path / "ledger.db"), dataset="visits")
    sketch.update(["a", "b"])
    sketch.save_sensitive(tmp_path / "state.sketch")
    again = dps.load_sensitive(tmp_path / "state.sketch")
    assert np.array_equal(again.snapshot(), sketch.snapshot())
    for each in (sketch, again):
        each.update(["a"])
    assert np.array_equal(again.snapshot(), sketch.snapshot())
    one, other = sketch.publish(), again.publish()
    assert one.guarantee == other.guarantee
    assert one.charge == other.charge
    assert one.noise_scale == other.noise_scale
    assert not dps.load_sensitive(again.to_sensitive_bytes())._stream.state.any()  # nothing is left of it


def test_a_merge_is_an_update() -> None:
    sketch, part = pan_private(), dps.CountSketch(rows=3, width=16, unit=dps.per_record())
    before = sketch.snapshot()
    part.update(["a", "b", "a"], counts=[5, 1, 2])
    exact = files.decode(part.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"]
    sketch.merge(part)
    assert np.array_equal(sketch.snapshot() - before, exact)
    assert sketch.spec.key_type == "text"
    numbers = dps.CountSketch(rows=3, width=16, unit=dps.per_record())
    numbers.update([1])
    users = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2))
    state = sketch.snapshot()
    for other in (numbers, users, dps.DistinctSketch(unit=dps.per_record()), pan_private()):
        with pytest.raises(SpecMismatch):
            sketch.merge(other)
    assert np.array_equal(sketch.snapshot(), state)


def test_fingerprints_stand_for_their_text() -> None:
    words = pa.array(["a", None, "", "日本語"])
    batch = fingerprint(words)
    signed = np.zeros(4, np.int64)
    signed[batch.kept] = batch.fingerprints.view(np.int64)
    hashed = text_fingerprints(pa.array(signed, mask=~batch.kept))
    for column in (hashed, hashed.slice(1), pa.concat_arrays([hashed, hashed])):
        rows = [words[i % 4].as_py() for i in (range(1, 4) if len(column) == 3 else range(len(column)))]
        found, wanted = fingerprint(column, "text"), fingerprint(rows, "text")
        assert np.array_equal(found.fingerprints, wanted.fingerprints)
        assert found.skipped == wanted.skipped
    with pytest.raises(SpecMismatch):
        fingerprint(hashed, "int")


@pytest.mark.statistical
@pytest.mark.usefixtures("seeded")
def test_a_state_that_was_read_back_publishes_with_fresh_noise_of_the_whole_law() -> None:
    """Of 12,288 draws the deviation errs by .64% (one standard error); 5% is passed by chance with less than 1e-13."""
    sketch = dps.ContinualSketch.from_sensitive_bytes(pan_private(width=4096).to_sensitive_bytes())
    state, sigma = sketch.snapshot(), sketch._stream.law.noise.sigma

    def right(fresh: np.ndarray) -> bool:
        return bool(abs(fresh.std() / sigma - 1) < 0.05)

    fresh = sketch.publish().table - state
    assert right(fresh)
    assert not right(fresh / 2)
    assert right(state)  # the state's own noise came along whole
