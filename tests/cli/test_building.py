"""Building, merging and releasing step by step: what is published, refused and left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def write(path: Path, *rows: str) -> str:
    path.write_text("".join(row + "\n" for row in rows))
    return path.name


@pytest.mark.parametrize("kind", ["counts", "sparse"])
def test_a_table_without_records_looks_like_one_with_a_record(dpsketch: Any, tmp_path: Path, kind: str) -> None:
    none, one = write(tmp_path / "none.csv", "key"), write(tmp_path / "one.csv", "key", "7")
    for options, expected in (([], "text"), (["--key-type", "int"], "int")):
        for source in (none, one):
            made = dpsketch("run", kind, source, "--key", "key", *options, *BUDGET, "--overwrite", "-o", "out.dps")
            assert made.code == 0, made.err
            assert dps.load("out.dps").spec.key_type == expected


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_json_lines_without_records_look_like_those_with_a_record(dpsketch: Any, tmp_path: Path, content: str) -> None:
    """They have no header, so that a file without a line is whole."""
    (tmp_path / "none.jsonl").write_text(content)
    (tmp_path / "one.jsonl").write_text('{"key": "7"}\n')
    for options, expected in (([], "text"), (["--key-type", "int"], "int")):
        for source in ("none.jsonl", "one.jsonl"):
            made = dpsketch("run", "counts", source, "--key", "key", *options, *BUDGET, "--overwrite", "-o", "out.dps")
            assert made.code == 0, made.err
            assert dps.load("out.dps").spec.key_type == expected
    assert dpsketch("build", "counts", "none.jsonl", "one.jsonl", "--key", "key", "-o", "both.sketch").code == 0
    user = ["--user", "who", "--max-keys", "2"]
    made = dpsketch("run", "counts", "none.jsonl", "--key", "key", *user, *BUDGET, "--no-ledger", "-o", "users.dps")
    assert made.code == 0, made.err


def test_a_database_is_not_named_by_its_password(dpsketch: Any, tmp_path: Path) -> None:
    source = "postgresql://me:secret@host?table=visits"
    shown = dpsketch("run", "counts", source, "--key", "key", *BUDGET, "--dry-run", "-o", "out.dps")
    assert shown.code == 0
    assert "secret" not in shown.err + shown.out


def test_parts_that_share_a_secret_end_with_their_merge(dpsketch: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "one.csv", "key", "a")
    options = ["--key", "key", "--p", "0.5", "--size", "20"]
    for output in ("both.sketch", "a.sketch"):
        dpsketch("build", "moment", source, *options, "-o", "a.sketch")
        dpsketch("build", "moment", source, "--key", "key", "--like", "a.sketch", "-o", "b.sketch")
        merged = dpsketch("merge", "a.sketch", "b.sketch", "-o", output)
        assert merged.code == 0, merged.err
        assert sorted(path.name for path in tmp_path.glob("*.sketch")) == [output]
        assert dpsketch("release", output, *BUDGET, "-o", f"{output}.dps").code == 0
        assert list(tmp_path.glob("*.sketch")) == []


def test_a_sketch_like_one_of_another_kind_is_refused(dpsketch: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "one.csv", "key", "a")
    dpsketch("build", "counts", source, "--key", "key", "-o", "a.sketch")
    refused = dpsketch("build", "moment", source, "--key", "key", "--like", "a.sketch", "-o", "b.sketch")
    assert refused.code == 2
    assert "counts" in refused.err
    profile = ["--p", "0.5", "--p", "1", "--size", "20"]
    dpsketch("build", "moment", source, "--key", "key", *profile, "-o", "m.sketch")
    like = dpsketch("build", "moment", source, "--key", "key", "--like", "m.sketch", "-o", "n.sketch")
    assert like.code == 0, like.err


def test_options_that_contradict_the_sketch_to_be_like_are_refused(dpsketch: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "one.csv", "key", "a")
    dpsketch("build", "counts", source, "--key", "key", "--max-weight", "3", "-o", "a.sketch")
    like = ["build", "counts", source, "--key", "key", "--like", "a.sketch", "-o", "b.sketch"]
    assert dpsketch(*like, "--max-weight", "3").code == 0
    Path("b.sketch").unlink()
    for option in (["--max-weight", "5"], ["--neighbours", "replace"]):
        refused = dpsketch(*like, *option)
        assert refused.code == 2
        assert "contradicts --like" in refused.err
        assert not Path("b.sketch").exists()
