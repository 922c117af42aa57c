"""Histograms in bounded memory through the command line: run, build, merge, release, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.kinds import load_sensitive

BUDGET = ["--epsilon", "2", "--delta", "1e-6", "--no-ledger"]
VOTES = ["histogram", "visits.csv", "--key", "url", "--max-counters", "256"]


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """5,000 visits, and the true counts of their keys."""
    rng = np.random.default_rng(5)
    urls = [f"/page/{rank}" for rank in np.minimum(rng.zipf(1.4, 5000), 2000).tolist()]
    monkeypatch.chdir(tmp_path)
    lines = [f"{url},v{user},1" for url, user in zip(urls, rng.integers(0, 1500, 5000).tolist(), strict=True)]
    Path("visits.csv").write_text("url,visitor,n\n" + "\n".join(lines) + "\n")
    return {url: urls.count(url) for url in set(urls)}


def test_run_and_ask(dpsketch: Any, visits: dict[str, int]) -> None:
    made = dpsketch("run", *VOTES, *BUDGET, "-o", "v.dps")
    assert made.code == 0, made.err
    found = dpsketch("top", "v.dps", "-n", "5", "--json").json
    assert found["estimates"][0]["key"] == max(visits, key=visits.__getitem__)
    for row in found["estimates"]:
        assert row["low"] <= visits[row["key"]] <= row["high"]
    assert "upper bound" in found["counts"]
    facts = dpsketch("inspect", "v.dps", "--json").json
    assert (facts["kind"], facts["form"], facts["spec"]["max_counters"]) == ("histogram-votes", "loads", 256)
    assert dpsketch("query", "v.dps", "/page/1").code == 0
    assert "lost its vote" in dpsketch("query", "v.dps", "/nobody").err
    assert dpsketch("plot", "v.dps", "-o", "v.png").code == 0
    assert dpsketch("run", *VOTES, *BUDGET, "-o", "w.dps").code == 0
    specs: list[Any] = [dps.load(path) for path in ("v.dps", "w.dps")]
    assert specs[0].spec.seed != specs[1].spec.seed  # drawn anew, so that no key is unlucky for ever


def test_parts_are_built_merged_and_released(dpsketch: Any, visits: dict[str, int]) -> None:
    lines = Path("visits.csv").read_text().splitlines()
    for part in (0, 1):
        Path(f"p{part}.csv").write_text("\n".join([lines[0], *lines[1 + part :: 2]]) + "\n")
        built = dpsketch("build", "histogram", f"p{part}.csv", *VOTES[2:], "-o", f"p{part}.sketch")
        assert built.code == 0, built.err
    assert dpsketch("merge", "p0.sketch", "p1.sketch", "-o", "all.sketch").code == 0
    assert isinstance(load_sensitive("all.sketch"), dps.VoteHistogram)
    made = dpsketch("release", "all.sketch", *BUDGET, "--form", "truncated", "-o", "all.dps")
    assert made.code == 0, made.err
    found = dpsketch("top", "all.dps", "-n", "3", "--json").json
    assert "no upper limit" in found["counts"]
    for row in found["estimates"]:
        assert row["low"] <= visits[row["key"]]
        assert row["high"] is None
    like = dpsketch("build", "histogram", "p0.csv", "--key", "url", "--like", "p1.sketch", "-o", "like.sketch")
    assert like.code == 0, like.err


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--weight", "n"], "no weights"),
        (["--grid", "0.5"], "drop --grid"),
        (["--others"], "--others does not apply"),
        (["--form", "rounds"], "loads, truncated, gaussian"),
        (["--max-weight", "3"], "max_weight is 1"),
    ],
)
@pytest.mark.usefixtures("visits")
def test_what_votes_cannot_do_is_refused(dpsketch: Any, words: list[str], refusal: str) -> None:
    made = dpsketch("run", *VOTES, *BUDGET, *words, "-o", "x.dps")
    assert made.code != 0
    assert refusal in made.err
    assert not Path("x.dps").exists()
