"""What ``--max-items`` cuts is said with every answer of a collection, and how much of it to the data holder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

CLIPPED = "shares of people, clipped: at most 2 items counted of each"


@pytest.fixture
def apps(dpsketch: Any, tmp_path: Path) -> Any:
    """A collection of 30 people with four items each and 10 with one; and what making its reports said."""
    rows = [f"{person},{item}" for person in range(30) for item in "abcd"]
    rows += [f"{person},a" for person in range(30, 40)]
    (tmp_path / "apps.csv").write_text("person,app\n" + "\n".join(rows) + "\n")
    options = ["--user", "person", "--key", "app", "--epsilon", "4", "--max-items", "2", "--spec", "apps.json"]
    made = dpsketch("local", "report", "apps.csv", *options, "-o", "r.jsonl")
    assert made.code == 0, made.err
    assert dpsketch("local", "collect", "r.jsonl", "--spec", "apps.json", "-o", "apps.dps").code == 0
    return made


def test_the_data_holder_is_told_how_much_max_items_cut(apps: Any, dpsketch: Any, tmp_path: Path) -> None:
    # 30 of 40 people have more than two items, and 60 of the 130 pairs are left out.
    assert "For your eyes: a cap of 2 items cuts the sets of 75.0% of people and leaves out 46.2%" in apps.err
    assert "46.2" not in apps.out
    (tmp_path / "few.csv").write_text("person,app\n1,a\n1,a\n1,b\n2,a\n")
    few = dpsketch(
        "local", "report", "few.csv", "--user", "person", "--key", "app", "--spec", "apps.json", "-o", "few.jsonl"
    )
    assert few.code == 0, few.err
    assert "For your eyes" not in few.err


@pytest.mark.parametrize("command", [["local", "estimate", "apps.dps", "a"], ["query", "apps.dps", "a"]])
@pytest.mark.usefixtures("apps")
def test_answers_say_that_they_are_clipped(dpsketch: Any, command: list[str]) -> None:
    assert f"Counted: {CLIPPED}." in dpsketch(*command).err
    assert dpsketch(*command, "--json").json["counts"] == CLIPPED


@pytest.mark.usefixtures("apps")
def test_every_form_and_command_says_that_it_is_clipped(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("a\nb\n")
    listed = dpsketch("top", "apps.dps", "--candidates", "keys.txt")
    assert f"Counted: {CLIPPED}." in listed.err
    for form in ("--csv", "--markdown"):
        assert f"Counted: {CLIPPED}." in dpsketch("query", "apps.dps", "a", form).err
    assert dpsketch("query", "apps.dps", "a", "--parquet", "a.parquet").code == 0
    assert pyarrow.parquet.read_schema("a.parquet").metadata[b"counts"] == CLIPPED.encode()
    assert f"counts: {CLIPPED}" in dpsketch("inspect", "apps.dps").out
    assert dpsketch("inspect", "apps.dps", "--json").json["counts"] == CLIPPED
