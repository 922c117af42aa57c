"""Which seed a release has: a fresh one, a stated one, or that of another release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]
KINDS: dict[str, list[str]] = {
    "counts": ["--key", "k", "--rows", "3", "--width", "16"],
    "heavy": ["--key", "k", "--key-bytes", "2", "--rows", "3", "--width", "16"],
    "sparse": ["--key", "k", "--expected-keys", "50"],
    "moment": ["--key", "k", "--p", "0.5", "--size", "10"],
    "density": ["--columns", "n", "--bandwidth", "1", "--rows", "4"],
    "distinct": ["--key", "k", "--buckets", "16"],
    "ranges": ["--key", "n", "--bits", "18", "--rows", "3", "--width", "16"],
}


@pytest.fixture(autouse=True)
def source(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,u,n\na,ann,1\nb,bob,2\na,bob,3\n")


@pytest.mark.parametrize("kind", KINDS)
def test_every_run_draws_a_seed_of_its_own_unless_one_is_stated(dpsketch: Any, kind: str) -> None:
    seeds = set()
    for _ in range(3):
        made = dpsketch("run", kind, "t.csv", *KINDS[kind], *BUDGET, "-o", "out.dps")
        assert made.code == 0, made.err
        seeds.add(dps.load("out.dps").spec.seed)
        Path("out.dps").unlink()
    assert len(seeds) == 3
    assert dpsketch("run", kind, "t.csv", *KINDS[kind], *BUDGET, "--seed", 7, "-o", "out.dps").code == 0
    assert dps.load("out.dps").spec.seed == 7


def test_partials_keep_the_fixed_seed_so_that_they_merge(dpsketch: Any) -> None:
    for name in ("a", "b"):
        assert dpsketch("build", "counts", "t.csv", *KINDS["counts"], "-o", f"{name}.sketch").code == 0
    assert dps.load_sensitive("a.sketch").spec == dps.load_sensitive("b.sketch").spec
    assert (
        dps.load_sensitive("a.sketch").spec.seed == dps.CountSketch(rows=3, width=16, unit=dps.per_record()).spec.seed
    )
    assert dpsketch("merge", "a.sketch", "b.sketch", "-o", "both.sketch").code == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "moment"])
def test_a_release_is_made_like_another(dpsketch: Any, kind: str) -> None:
    made = dpsketch("run", kind, "t.csv", *KINDS[kind], *BUDGET, "-o", "first.dps")
    assert made.code == 0, made.err
    read = KINDS[kind][:2]
    made = dpsketch("run", kind, "t.csv", *read, "--like", "first.dps", *BUDGET, "-o", "second.dps")
    assert made.code == 0, made.err
    assert dps.load("second.dps").spec == dps.load("first.dps").spec


def test_days_that_are_made_alike_subtract(dpsketch: Any) -> None:
    unit = ["--user", "u", "--max-keys", "2", "--neighbours", "replace"]
    dpsketch("run", "counts", "t.csv", *KINDS["counts"], *unit, *BUDGET, "-o", "first.dps")
    dpsketch("run", "counts", "t.csv", *KINDS["counts"], *unit, *BUDGET, "-o", "other.dps")
    made = dpsketch(
        "run", "counts", "t.csv", "--key", "k", "--user", "u", "--like", "first.dps", *BUDGET, "-o", "next.dps"
    )
    assert made.code == 0, made.err
    difference = dps.load("next.dps") - dps.load("first.dps")
    assert len(difference.estimate(["a", "b"])) == 2
    with pytest.raises(dps.errors.SpecMismatch, match="seed differs"):
        dps.load("other.dps") - dps.load("first.dps")


def test_options_that_contradict_the_other_release_are_refused(dpsketch: Any) -> None:
    dpsketch("run", "counts", "t.csv", *KINDS["counts"], *BUDGET, "-o", "first.dps")
    dpsketch("build", "counts", "t.csv", *KINDS["counts"], "-o", "part.sketch")
    like = ["--like", "first.dps"]
    for kind, options, words in (
        ("counts", [*like, "--rows", "5"], "takes the whole spec"),
        ("counts", [*like, "--seed", "5"], "takes the whole spec"),
        ("counts", [*like, "--user", "u", "--max-keys", "2"], "takes the whole spec"),
        ("counts", [*like, "--max-weight", "4"], "contradicts --like"),
        ("counts", [*like, "--neighbours", "replace"], "contradicts --like"),
        ("counts", [*like, "--key-type", "int"], "contradicts --like"),
        ("counts", [*like, "--user", "u"], "contradicts --like"),
        ("distinct", like, "kind counts"),
        ("counts", ["--like", "part.sketch"], "sensitive"),
    ):
        refused = dpsketch("run", kind, "t.csv", "--key", "k", *options, *BUDGET, "-o", "out.dps")
        assert refused.code == 2, (options, refused.err)
        assert words in refused.err
        assert not Path("out.dps").exists()
