"""What a release counts is said with every answer, and what its bounds cut is said to the data holder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]
COUNTED = "users, clipped: at most 2 keys counted each (weight at most 1 on each)"


def visits(folder: Path) -> str:
    # Ann has ten keys of one record each, nine others have one key each, bob's with three records.
    rows = [f"p{i},ann" for i in range(10)] + [f"p0,user{i}" for i in range(8)] + ["p0,bob"] * 3
    (folder / "visits.csv").write_text("page,user\n" + "\n".join(rows) + "\n")
    return "visits.csv"


@pytest.mark.parametrize("kind", ["counts", "heavy", "sparse", "distinct"])
@pytest.mark.parametrize("command", ["run", "build"])
def test_the_data_holder_is_told_how_much_max_keys_cut(dpsketch: Any, tmp_path: Path, kind: str, command: str) -> None:
    options = ["--key", "page", "--user", "user", "--max-keys", "2"]
    options += ["--key-bytes", "4", "--rows", "3", "--width", "16"] if kind == "heavy" else []
    made = dpsketch(command, kind, visits(tmp_path), *options, *(BUDGET if command == "run" else []), "-o", "out")
    assert made.code == 0, made.err
    assert "For your eyes: 38% of the records were cut by --max-keys 2" in made.err  # 8 of 21
    # 2 of ann's, 8 and 1 of bob's are left of 21.
    assert ("48% of the total weight" in made.err) == (kind != "distinct")
    if command == "run":
        content = Path("out").read_bytes()
        assert b'"cut"' not in content
        assert b"left_out" not in content


def test_the_data_holder_is_told_how_much_weight_was_clipped(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,w\n" + "a,1\n" * 22 + "b,26\n" * 3)
    made = dpsketch("run", "counts", "t.csv", "--key", "k", "--weight", "w", *BUDGET, "-o", "out.dps")
    assert made.code == 0, made.err
    assert "For your eyes: 12% of the records had a weight above 1, which cut 75% of the total weight" in made.err
    made = dpsketch(
        "run", "counts", "t.csv", "--key", "k", "--weight", "w", "--max-weight", "26", *BUDGET, "-o", "all.dps"
    )
    assert "For your eyes: " not in made.err.replace("(For your eyes: this number", "")


def test_answers_say_what_they_count(dpsketch: Any, tmp_path: Path) -> None:
    options = ["--key", "page", "--user", "user", "--max-keys", "2"]
    dpsketch("run", "counts", visits(tmp_path), *options, *BUDGET, "-o", "out.dps")
    (tmp_path / "keys.txt").write_text("p0\n")
    for command in (["query", "out.dps", "p0"], ["top", "out.dps", "--candidates", "keys.txt"], ["inspect", "out.dps"]):
        said = dpsketch(*command)
        assert COUNTED in said.out + said.err
        assert json.loads(dpsketch(*command, "--json").out)["counts"] == COUNTED
    release = dps.load("out.dps")
    for found in (release.estimate(["p0"]), release.top(1, candidates=["p0"]), release.decode(["p0"])):
        assert found.counts == COUNTED
        assert COUNTED in repr(found)


def test_what_was_cut_is_known_to_the_sketch_and_adds_up() -> None:
    def filled(users: list[str], keys: list[str]) -> dps.CountSketch:
        sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2), key_type="text")
        sketch.update(keys, users=users)
        return sketch

    one, other = filled(["a"] * 5, list("vwxyz")), filled(["b"] * 3, list("xxy"))
    assert (one.cut.records, one.cut.left_out) == (5, 3)
    assert (other.cut.records, other.cut.left_out, other.cut.offered, other.cut.counted) == (3, 0, 3, 2)
    one.merge(dps.load_sensitive(other.to_sensitive_bytes()))
    assert (one.cut.records, one.cut.left_out, one.cut.offered, one.cut.counted) == (8, 3, 8, 4)
    assert "3" not in repr(one.cut)


def test_where_a_release_chooses_max_keys_nothing_is_said_to_be_cut_by_it(dpsketch: Any, tmp_path: Path) -> None:
    """Ann's ten keys are all there until the release; bob's three records of one key weigh 1, which is two of 21."""
    made = dpsketch(
        "run",
        "histogram",
        visits(tmp_path),
        "--key",
        "page",
        "--user",
        "user",
        "--max-keys",
        "auto",
        *BUDGET,
        "-o",
        "out",
    )
    assert made.code == 0, made.err
    told = " ".join(made.err.split())
    assert "10% of the total weight does not count, by --max-weight 1 on each key of a user." in told
    assert "4096" not in told
