"""Which seed a release has: a fresh one, a stated one, or that of another release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger", "-o"]
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


def spec(dpsketch: Any, name: str, kind: str, *options: str) -> Any:
    made = dpsketch("run", kind, "t.csv", *options, *BUDGET, name)
    assert made.code == 0, made.err
    return dps.load(name).spec


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_draws_its_seed_unless_one_is_stated_or_it_is_made_like_another(dpsketch: Any, kind: str) -> None:
    first, second = (spec(dpsketch, f"{name}.dps", kind, *KINDS[kind]) for name in ("first", "second"))
    assert first.seed != second.seed
    assert spec(dpsketch, "zero.dps", kind, *KINDS[kind], "--seed", "0").seed == 0
    if kind != "moment":
        assert spec(dpsketch, "like.dps", kind, *KINDS[kind][:2], "--like", "first.dps") == first


def test_options_that_contradict_the_other_release_are_refused(dpsketch: Any) -> None:
    first = spec(dpsketch, "first.dps", "counts", *KINDS["counts"])
    built = ("build", "counts", "t.csv", "--key", "k", "--like", "first.dps", "-o", "part.sketch")
    for more in ((), ("--overwrite",)):
        made = dpsketch(*built, *more)
        assert made.code == 0, made.err
        assert dps.load_sensitive("part.sketch").spec == first
        assert Path("part.sketch").stat().st_mode & 0o077 == 0
    like = ["--like", "first.dps"]
    for kind, options, words in (
        ("counts", [*like, "--seed", "5", "--max-keys", "2"], "drop --max-keys, --seed."),
        ("counts", [*like, "--rows", "5"], "takes the whole spec"),
        ("counts", [*like, "--neighbours", "replace"], "contradicts --like"),
        ("counts", [*like, "--user", "u"], "contradicts --like"),
        ("distinct", like, "kind counts"),
        ("counts", ["--like", "part.sketch"], "sensitive"),
    ):
        refused = dpsketch("run", kind, "t.csv", "--key", "k", *options, *BUDGET, "out.dps")
        assert refused.code == 2, (options, refused.err)
        assert words in refused.err
        assert not Path("out.dps").exists()
    refused = dpsketch(*built[:-1], "other.sketch", "--max-weight", "5")
    assert (refused.code, "contradicts --like" in refused.err) == (2, True)
    assert not Path("other.sketch").exists()
