"""What the driver merges itself says no more of records, where it fails, than an executor would."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SourceError, SpecMismatch
from dpsketch.sources.values import Batch

pytest.importorskip("pyspark")

from pyspark.sql import types

from dpsketch.spark import DailyStream, construction, relations, tasks


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


def test_one_person_is_not_two_in_files_and_columns_of_other_types() -> None:
    """What files hold is compared with their first one; floats, decimals and timestamps are not compared by Spark."""
    whole, text = pa.array([5]), pa.array(["5"])
    schema = pa.schema([("key", pa.string()), ("user", pa.string())])
    for batch in (Batch(text, whole, None, (), 1), Batch(text, text, None, (), 1, user_type="date")):
        with pytest.raises(SourceError, match="text or another type in others"):
            tasks._written(batch, schema, None)
    for kind in (types.DoubleType(), types.DecimalType(9, 2), types.TimestampType()):
        frame = MagicMock(schema=types.StructType([types.StructField("user", kind)]))
        with pytest.raises(InvalidInput, match="floats, decimals or timestamps"):
            relations.refuse_other_types(frame, ["key", "user"])
