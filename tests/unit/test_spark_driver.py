"""What the driver merges itself says no more of records, where it fails, than an executor would."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import pytest

from dpsketch.errors import SourceError, SpecMismatch

pytest.importorskip("pyspark")

from dpsketch.spark import merge

ROWS = [{"number": number, "part": b"part", "tally": "{}", "failure": None, "size": 4} for number in (0, 1)]


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("raised", "told"), [(KeyError, SourceError), (SpecMismatch, SpecMismatch)])
def test_an_error_on_the_driver_quotes_no_record(
    monkeypatch: pytest.MonkeyPatch, in_order: bool, raised: type[Exception], told: type[Exception]
) -> None:
    """A refusal of ours comes as it is; of any other error only the type does."""

    def fail(*given: Any, **more: Any) -> None:
        raise raised("ann@example.org")

    columns = MagicMock()
    columns.col.return_value.__lt__.return_value = columns.length.return_value.__le__.return_value = MagicMock()
    monkeypatch.setattr(merge, "functions", columns)
    monkeypatch.setattr(merge, "settings", lambda *given: nullcontext())
    monkeypatch.setattr(merge, "merge_parts", fail)
    parts = MagicMock()
    parts.collect.return_value = parts.select.return_value.collect.return_value = ROWS
    with pytest.raises(told) as caught:
        merge.merged(parts, disjoint_users=False, in_order=in_order)
    assert ("ann@example.org" in str(caught.value)) == (told is SpecMismatch)
    assert told is SpecMismatch or caught.value.__context__ is None
