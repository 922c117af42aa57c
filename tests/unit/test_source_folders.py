"""Folders, Hive's partitions, archives and JSON arrays give the records of their files."""

from __future__ import annotations

import bz2
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from dpsketch.errors import SourceError
from dpsketch.sources import Columns, open_source, parse_expression
from reading import records, refused

ROWS = [("a", 1), ("b", 2), ("a", 3), ("é,\n", 4)]


def csv(rows: list[tuple[str, int]] = ROWS) -> str:
    return "k,n\n" + "".join(f'"{key}",{number}\n' for key, number in rows)


def keys(source: object, **columns: Any) -> list[Any]:
    return [row[0] for row in records(str(source), columns=Columns(**{"key": "k", **columns}))]


def test_a_folder_is_all_files_below_it_but_hidden_ones(tmp_path: Path) -> None:
    below = tmp_path / "logs" / "2026"
    below.mkdir(parents=True)
    (tmp_path / "logs" / "a.csv").write_text(csv(ROWS[:1]))
    (below / "b.csv.gz").write_bytes(gzip.compress(csv(ROWS[1:2]).encode()))
    pa.parquet.write_table(pa.table({"k": ["c"]}), below / "part-0.snappy.parquet")
    for hidden in ("_SUCCESS", ".a.csv.crc", "_metadata"):
        (tmp_path / "logs" / hidden).write_text("k\nnever\n")
    assert sorted(keys(tmp_path / "logs")) == ["a", "b", "c"]


def test_folders_named_by_hive_are_columns(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b", "c", "d"], "day": ["2026-11-15", "2026-11-16", None, "a/b c"], "n": [1, 2, 3, 4]})
    by_day = pa.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    pa.dataset.write_dataset(table, tmp_path / "t", format="parquet", partitioning=by_day)
    (tmp_path / "t" / "day=7").mkdir()
    (tmp_path / "t" / "day=7" / "t.csv").write_text("k,n\ne,5\n")
    found = records(str(tmp_path / "t"), columns=Columns(key="k", user="day"))
    assert sorted(found) == [("a", "2026-11-15"), ("b", "2026-11-16"), ("d", "a/b c"), ("e", "7")]  # one has no user
    assert keys(tmp_path / "t" / "day=7" / "t.csv", key="n") == ["5"]
    assert "2026-11-15,a" in keys(tmp_path / "t", key=("day", "k"))
    where = parse_expression("day = '2026-11-16'", "--where")
    assert keys(tmp_path / "t", where=where) == ["b"]
    assert "has no column 'nowhere'" in refused(str(tmp_path / "t"), columns=Columns(key="nowhere"))


def test_an_archive_is_the_text_files_in_it(tmp_path: Path) -> None:
    def packed(name: str, **inside: bytes | str) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for each, content in inside.items():
                archive.writestr(each, content)
        return tmp_path / name

    files = {"a.csv": csv(ROWS[:2]), "deeper/b.tsv": "k\tn\nz\t1\n", "__MACOSX/._a.csv": "rubbish"}
    assert keys(packed("t.zip", **files)) == ["a", "b", "z"]
    assert "Unpack the archive" in refused(packed("p.zip", **{"a.parquet": b"PAR1"}))
    (tmp_path / "broken.zip").write_bytes((tmp_path / "t.zip").read_bytes()[:40])
    assert "damaged" in refused(tmp_path / "broken.zip")


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, bz2.compress])
def test_a_json_array_is_its_lines(pack: Any, tmp_path: Path) -> None:
    suffix = {gzip.compress: ".gz", bz2.compress: ".bz2"}.get(pack, "")
    path = tmp_path / f"t.json{suffix}"
    rows = [*ROWS, *((f'"{i}\\' * 40, i) for i in range(9_000))]  # strings cross the ends of blocks
    objects = [{"k": key, "n": number, "deep": [{"k": "no"}, "],["]} for key, number in rows]
    for written in (json.dumps(objects), json.dumps(objects, indent=1, ensure_ascii=False)):
        path.write_bytes(pack(b"\xef\xbb\xbf" + written.encode()))
        assert records(str(path), columns=Columns(key="k", weight="n")) == rows
    path.write_bytes(pack(b" [ ] \n"))
    assert keys(path) == []


def test_folders_whose_names_are_not_utf8_are_refused(tmp_path: Path) -> None:
    for name in ("u=%ff", "u=%fe"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("k\nx\n")
    with pytest.raises(SourceError, match="percent-encoded"):
        list(open_source([str(tmp_path)], Columns(key="k", user="u")))
