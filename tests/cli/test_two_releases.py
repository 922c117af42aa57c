"""Two releases: compare, add and subtract say what Python's operators do, with the guarantee of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]


@pytest.fixture(autouse=True)
def days(dpsketch: Any, tmp_path: Path) -> None:
    for day, counts in (("mon", {"a": 3000, "b": 1000}), ("tue", {"a": 1000, "b": 1010, "c": 500})):
        (tmp_path / f"{day}.csv").write_text("k\n" + "".join(f"{key}\n" * count for key, count in counts.items()))
        for kind, shape in (("counts", ["--rows", "5", "--width", "64", "--seed", "3"]), ("histogram", [])):
            made = dpsketch("run", kind, f"{day}.csv", "--key", "k", *shape, *BUDGET, "-o", f"{day}-{kind}.dps")
            assert made.code == 0, made.err


def test_add_and_subtract_are_pythons(dpsketch: Any) -> None:
    mon, tue = (dps.load(f"{day}-counts.dps") for day in ("mon", "tue"))
    for command, expected in (("add", tue + mon), ("subtract", tue - mon)):
        made = dpsketch(command, "tue-counts.dps", "mon-counts.dps", "-o", f"{command}.dps")
        assert made.code == 0, made.err
        found = dps.load(f"{command}.dps")
        assert np.array_equal(found.table, expected.table)
        assert found.guarantee == expected.guarantee
        assert found.guarantee.epsilon > 1.3  # of someone in both
        assert str(expected.guarantee) in made.err
    assert dpsketch("add", "mon-counts.dps", "mon-counts.dps", "-o", "twice.dps").code == 1
    refused = dpsketch("add", "mon-histogram.dps", "tue-histogram.dps", "-o", "no.dps")
    assert refused.code == 2
    assert "dpsketch compare" in refused.err
    assert not Path("no.dps").exists()


def test_compare_tells_what_changed_from_the_first_to_the_second(dpsketch: Any) -> None:
    truth = {"a": -2000, "b": 10, "c": 500}
    for kind in ("histogram", "counts"):
        asked = [] if kind == "histogram" else ["a", "b", "c"]
        answer = dpsketch("compare", f"mon-{kind}.dps", f"tue-{kind}.dps", *asked, "--json").json
        rows = {row["key"]: row for row in answer["estimates"]}
        assert rows.keys() == truth.keys()
        assert all(rows[key]["low"] <= value <= rows[key]["high"] for key, value in truth.items() if key != "c")
        assert answer["guarantee"]["epsilon"] > 1.3
        assert "no significance test" in answer["note"]
        assert "no significance test" in dpsketch("compare", f"mon-{kind}.dps", f"tue-{kind}.dps", "a").err
    assert next(iter(rows)) == "a"
    both = (dps.load("mon-histogram.dps"), dps.load("tue-histogram.dps"))
    before, after = (release.estimate(["a"], confidence=0.975) for release in both)
    row = dpsketch("compare", "mon-histogram.dps", "tue-histogram.dps", "a", "--json").json["estimates"][0]
    assert (row["value"], row["low"], row["high"]) == (
        after.value[0] - before.value[0], after.low[0] - before.high[0], after.high[0] - before.low[0],
    )  # fmt: skip
    for pair in (("mon-counts.dps", "tue-histogram.dps"), ("mon-counts.dps", "tue-counts.dps")):
        assert dpsketch("compare", *pair).code == 2  # other kinds; keys that nobody named
