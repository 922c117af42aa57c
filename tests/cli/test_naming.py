"""Whose budget pays where nobody says: a copy gets no fresh budget unnoticed, and a name is asked for once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

BUDGET = ("--epsilon", "0.5", "--delta", "1e-6")
TOTAL = ("--epsilon", "2", "--delta", "1e-6")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("url\n" + "/a\n/b\n" * 20)
    return path


def charged(dpsketch) -> dict[str, int]:
    return {each["dataset"]: each["releases"] for each in dpsketch("ledger", "show", "--json").json["datasets"]}


def run(dpsketch, source, *more):
    return dpsketch("run", "counts", source, "--key", "url", *BUDGET, "--overwrite", "-o", "out.dps", *more)


def test_a_copy_gets_no_fresh_budget_unnoticed(dpsketch, visits, tmp_path) -> None:
    dpsketch("ledger", "create", "visits.csv", *TOTAL)
    assert run(dpsketch, visits).code == 0
    copy = tmp_path / "copy.csv"
    shutil.copy(visits, copy)
    refused = run(dpsketch, copy)
    assert refused.code != 0
    assert "does not know the source 'copy.csv', and keeps totals (of 'visits.csv')" in refused.err
    assert charged(dpsketch) == {"visits.csv": 1}
    assert run(dpsketch, copy, "--dataset", "visits.csv").code == 0
    assert run(dpsketch, copy).code == 0  # it was asked for once
    assert charged(dpsketch) == {"visits.csv": 3}


def test_a_name_is_remembered_with_the_place(dpsketch, visits, tmp_path) -> None:
    dpsketch("ledger", "create", "web", *TOTAL)
    assert run(dpsketch, visits, "--dataset", "web").code == 0
    assert run(dpsketch, "visits.csv").code == 0
    assert charged(dpsketch) == {"web": 2}
    other = run(dpsketch, visits, "--dataset", "elsewhere")
    assert "was charged to dataset 'web' before" in other.err
    assert charged(dpsketch) == {"elsewhere": 1, "web": 2}


def test_two_files_of_one_name_are_told_apart(dpsketch, visits, tmp_path) -> None:
    assert run(dpsketch, visits).code == 0
    (tmp_path / "other").mkdir()
    shutil.copy(visits, tmp_path / "other" / "visits.csv")
    refused = run(dpsketch, tmp_path / "other" / "visits.csv")
    assert "another file of that name" in refused.err
    assert charged(dpsketch) == {"visits.csv": 1}


def test_a_pipe_has_no_name_and_a_list_of_files_gets_one(dpsketch, dpsketch_process, visits, tmp_path) -> None:
    piped = ("run", "counts", "-", "--key", "url", *BUDGET, "-o", "piped.dps")
    assert "standard input has no name of its own" in dpsketch_process(*piped, stdin=visits.read_bytes()).err
    assert dpsketch_process(*piped, "--no-ledger", stdin=visits.read_bytes()).code == 0
    second = tmp_path / "second.csv"
    shutil.copy(visits, second)
    both = ("run", "counts", visits, second, "--key", "url", *BUDGET, "--overwrite", "-o", "both.dps")
    assert dpsketch(*both).code == 0
    assert dpsketch(*both).code == 0
    [(name, releases)] = charged(dpsketch).items()
    assert name.startswith("several sources ")
    assert releases == 2  # the same files are the same dataset, and others are another
    assert dpsketch(*both[:3], visits.with_name("third.csv"), *both[4:], "--dry-run").code == 0
    dpsketch("ledger", "create", "web", *TOTAL)
    other = dpsketch(*both[:3], visits.with_name("third.csv"), *both[4:], "--dry-run")
    assert "does not know several sources, and keeps totals" in other.err


def test_a_copied_sketch_is_the_same_dataset(dpsketch, visits, tmp_path) -> None:
    dpsketch("build", "counts", visits, "--key", "url", "-o", "day.sketch")
    assert dpsketch("release", "day.sketch", *BUDGET, "--dataset", "web", "-o", "one.dps").code == 0
    shutil.copy(tmp_path / "day.sketch", tmp_path / "copy.sketch")
    assert dpsketch("release", "copy.sketch", *BUDGET, "-o", "two.dps").code == 0
    assert charged(dpsketch) == {"web": 2}


def test_what_is_remembered_is_no_digest_of_records(dpsketch, visits, tmp_path) -> None:
    """It stays as it is whatever the file holds; and no password of an address is in it."""
    from dpsketch.cli.budget import source_of

    before = source_of([str(visits)])
    visits.write_text("url\nother\n")
    assert source_of([str(visits)]) == before
    one, other = (source_of([f"postgresql://{user}@host/db?table=t"]) for user in ("ann:secret", "bob"))
    assert one == other
    assert one != source_of(["postgresql://bob@host/db?table=u"])
