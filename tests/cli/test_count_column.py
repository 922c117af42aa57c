"""--count: a row that stands for so many equal records, as ``counts=`` does in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]
SHAPES = {
    "histogram": [], "counts": ["--width", "512"], "heavy": ["--key-bytes", "8", "--width", "512"], "sparse": [],
}  # fmt: skip


@pytest.mark.parametrize("kind", SHAPES)
def test_a_row_counts_for_as_many_records_as_it_says(dpsketch: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "words.csv").write_text("word,n\nthe,5000\nof,3000\nnone,0\nnull,\nthe, 40 \n")
    made = dpsketch(
        "run", kind, "words.csv", "--key", "word", "--count", "n", *SHAPES[kind], *BUDGET, "-o", "out.dps"
    )  # fmt: skip
    assert made.code == 0, made.err
    assert "1 of them skipped" in made.err  # the row without a count stands for no record
    found: Any = dps.load("out.dps")
    values = found.estimate(["the", "of", "none", "null"]).value
    assert abs(values - [5040, 3000, 0, 0]).max() < 80


def test_every_source_reads_counts_and_the_same_table(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,n\na,700\nb,\nc,3\n")
    (tmp_path / "t.jsonl").write_text('{"k": "a", "n": 700}\n{"k": "b", "n": null}\n{"k": "c", "n": 3}\n')
    for name, kind in (("i", pa.int16()), ("f", pa.float64()), ("d", pa.decimal128(9, 0))):
        table = pa.table({"k": ["a", "b", "c"], "n": pa.array([700, None, 3], pa.int16()).cast(kind)})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    sketches = []
    for source in ("t.csv", "t.jsonl", "i.parquet", "f.parquet", "d.parquet"):
        made = dpsketch("build", "counts", source, "--key", "k", "--count", "n", "-o", f"{source}.sketch")
        assert made.code == 0, made.err
        sketches.append(dps.CountSketch.from_sensitive_bytes(Path(f"{source}.sketch").read_bytes())._table.tolist())
    plain = dps.CountSketch(rows=7, width=4096, unit=dps.per_record())
    plain.update(["a", "c"], counts=[700, 3])
    assert all(table == plain._table.tolist() for table in sketches)


@pytest.mark.parametrize("bad", ["-1", "2.5", "x", "99999999999999999999", "inf"])
def test_what_is_no_whole_number_is_refused_without_quoting_it(dpsketch: Any, tmp_path: Path, bad: str) -> None:
    (tmp_path / "t.csv").write_text(f"k,n\nsecret,{bad}\n")
    refused = dpsketch("run", "histogram", "t.csv", "--key", "k", "--count", "n", *BUDGET, "-o", "out.dps")
    assert refused.code == 1
    assert "a count that is not a whole number from 0 on" in refused.err
    assert "secret" not in refused.err
    assert bad not in refused.err
    assert not Path("out.dps").exists()


def test_a_count_goes_with_records_and_with_kinds_that_count_them(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,u,n\na,ann,2\n")
    users = ["--user", "u", "--max-keys", "2"]
    refused = dpsketch("run", "histogram", "t.csv", "--key", "k", "--count", "n", *users, *BUDGET, "-o", "out.dps")
    assert refused.code == 2
    assert "--count says how many records of nobody" in refused.err
    refused = dpsketch("run", "distinct", "t.csv", "--key", "k", "--count", "n", *BUDGET, "-o", "out.dps")
    assert "--count does not apply to distinct" in refused.err
    refused = dpsketch(
        "run", "density", "t.csv", "--columns", "n", "--bandwidth", "1", "--bounds", "0:9", "--count", "n", *BUDGET,
        "-o", "out.dps",
    )  # fmt: skip
    assert "--count does not apply to density" in refused.err
    assert not Path("out.dps").exists()


def test_weights_and_conditions_go_with_counts(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,w,n\na,2,300\na,9,100\nb,1,500\n")
    made = dpsketch(
        "run", "histogram", "t.csv", "--key", "k", "--count", "n", "--weight", "w", "--max-weight", "4",
        "--where", "k = 'a'", *BUDGET, "-o", "out.dps",
    )  # fmt: skip
    assert made.code == 0, made.err
    found: Any = dps.load("out.dps")
    assert found.keys == ["a"]
    assert abs(found.top(1).value[0] - (2 * 300 + 4 * 100)) < 100
