"""What the driver merges itself says no more of records, where it fails, than an executor would."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import SourceError, SpecMismatch

pytest.importorskip("pyspark")

from dpsketch.spark import DailyStream, construction


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("raised", "told"), [(KeyError, SourceError), (SpecMismatch, SpecMismatch)])
def test_an_error_on_the_driver_quotes_no_record(
    monkeypatch: pytest.MonkeyPatch, in_order: bool, raised: type[Exception], told: type[Exception]
) -> None:
    """A refusal of ours comes as it is; of any other error only the type does."""

    def fail(*given: Any, **more: Any) -> None:
        raise raised("ann@example.org")

    monkeypatch.setattr(construction, "merge_parts", fail)
    parts = MagicMock()
    parts.repartition.return_value = parts.mapInArrow.return_value = parts
    parts.toArrow.return_value = pa.table({"number": [0, 1]})
    with pytest.raises(told) as caught:
        construction._merged(parts, disjoint_users=False, in_order=in_order)
    assert ("ann@example.org" in str(caught.value)) == (told is SpecMismatch)
    assert told is SpecMismatch or caught.value.__context__ is None


def test_a_day_of_users_that_cannot_be_collected_quotes_no_record(tmp_path: Path) -> None:
    """The driver counts users itself; one column may be both their key and their name."""

    def start() -> dps.ContinualSketch:
        counted = dps.CountSketch(rows=3, width=64, unit=dps.per_user(max_keys=1), key_type="text")
        return dps.ContinualSketch(counted, days=3, epsilon=1.0, delta=1e-6, user_days=1)

    daily = DailyStream(tmp_path / "state", start, lambda release, day: None, key="who", user="who")
    batch = MagicMock()
    batch.select.return_value.toArrow.side_effect = ValueError("ann@example.org")
    with pytest.raises(SourceError, match="ValueError") as caught:
        daily(batch, 0)
    assert "ann@example.org" not in str(caught.value)
    assert caught.value.__context__ is None
    batch.select.assert_called_once_with("`who`")
