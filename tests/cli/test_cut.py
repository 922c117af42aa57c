"""What a release counts is said with every answer, and what its bounds cut is said to the data holder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]
COUNTED = "users, clipped: at most 2 keys counted each (weight at most 1 on each)"


def visits(folder: Path) -> str:
    # Ann has ten keys of one record each, nine others have one key each, bob's with three records.
    rows = [f"p{i},ann" for i in range(10)] + [f"p0,user{i}" for i in range(8)] + ["p0,bob"] * 3
    (folder / "visits.csv").write_text("page,user\n" + "\n".join(rows) + "\n")
    return "visits.csv"


@pytest.mark.parametrize("kind", ["counts", "heavy", "distinct"])
def test_the_data_holder_alone_is_told_how_much_the_bounds_cut(dpsketch: Any, tmp_path: Path, kind: str) -> None:
    options = ["--key", "page", "--user", "user"]
    options += ["--key-bytes", "4", "--rows", "3", "--width", "16"] if kind == "heavy" else []
    for command, budget in (("build", []), ("run", BUDGET)):
        asked = (command, kind, visits(tmp_path), *options, *budget)
        made = dpsketch(*asked, "--max-keys", "2", "-o", f"{command}.out")
        assert made.code == 0, made.err
        assert "For your eyes: 38% of the records were cut by --max-keys 2" in made.err  # 8 of 21
        # 2 of ann's, 8 and 1 of bob's are left of 21.
        assert ("48% of the total weight" in made.err) == (kind != "distinct")
        assert "were cut" not in dpsketch(*asked, "--max-keys", "10", "-o", f"{command}.enough").err
    content = Path("run.out").read_bytes()
    assert b'"cut"' not in content
    assert b"left_out" not in content
    (tmp_path / "t.csv").write_text("k,w\n" + "a,1\n" * 22 + "b,26\n" * 3)
    made = dpsketch("run", "counts", "t.csv", "--key", "k", "--weight", "w", *BUDGET, "-o", "out.dps")
    assert "For your eyes: 12% of the records had a weight above 1, which cut 75% of the total weight" in made.err


def test_every_command_says_in_every_form_what_it_counts(dpsketch: Any, tmp_path: Path) -> None:
    bounded = ["--key", "page", "--user", "user", "--max-keys", "2"]
    dpsketch("run", "counts", visits(tmp_path), *bounded, *BUDGET, "-o", "out.dps")
    Path("keys.txt").write_text("p0\n")
    query = ["query", "out.dps", "p0"]
    for command in (query, ["top", "out.dps", "--candidates", "keys.txt"], ["inspect", "out.dps"]):
        said = dpsketch(*command)
        assert COUNTED in said.out + said.err
        assert dpsketch(*command, "--json").json["counts"] == COUNTED
    for form in ("--csv", "--markdown"):
        assert COUNTED in dpsketch(*query, form).err
    assert dpsketch(*query, "--parquet", "a.parquet").code == 0
    assert pyarrow.parquet.read_schema("a.parquet").metadata[b"counts"] == COUNTED.encode()


def test_what_was_cut_is_known_to_the_sketch_and_adds_up() -> None:
    def filled(users: list[str], keys: list[str]) -> dps.CountSketch:
        sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2), key_type="text")
        sketch.update(keys, users=users)
        return sketch

    one, other = filled(["a"] * 5, list("vwxyz")), filled(["b"] * 3, list("xxy"))
    one.merge(dps.load_sensitive(other.to_sensitive_bytes()))
    assert (one.cut.records, one.cut.left_out, one.cut.offered, one.cut.counted) == (8, 3, 8, 4)
    assert "3" not in repr(one.cut)


def test_what_max_items_cuts_of_local_reports_is_told(dpsketch: Any, tmp_path: Path) -> None:
    """30 of 40 people have four items, of which two count: 60 of the 130 pairs are left out."""
    rows = [f"{person},{item}" for person in range(30) for item in "abcd"]
    rows += [f"{person},a" for person in range(30, 40)]
    (tmp_path / "apps.csv").write_text("person,app\n" + "\n".join(rows) + "\n")
    people = ["--user", "person", "--key", "app", "--spec", "apps.json"]
    made = dpsketch("local", "report", "apps.csv", *people, "--epsilon", "4", "--max-items", "2", "-o", "r.jsonl")
    assert made.code == 0, made.err
    assert "For your eyes: a cap of 2 items cuts the sets of 75.0% of people and leaves out 46.2%" in made.err
    assert "46.2" not in made.out
