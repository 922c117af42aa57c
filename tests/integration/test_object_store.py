"""Records in an object store, read from a real S3 server (moto's, from PyPI) through Arrow's file system."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from pyarrow import fs

from dpsketch.errors import SourceError
from dpsketch.sources import Columns, open_source
from reading import records, refused


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fs.S3FileSystem, str]]:
    """An S3 server of our own on a free port, and what an address in it ends with."""
    pytest.importorskip("moto.server", reason="the dev extra installs moto's server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_EC2_METADATA_DISABLED": "true"}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    before = {name: os.environ.get(name) for name in keys}
    os.environ.update(keys)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        files = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        files.create_dir("shop")
        yield files, f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def put(files: Any, path: str, data: bytes) -> None:
    with files.open_output_stream(path, compression=None) as target:
        target.write(data)


def packed(table: pa.Table, kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "parquet":
        pa.parquet.write_table(table, buffer, row_group_size=2)
    elif kind == "arrow":
        with pa.ipc.new_file(buffer, table.schema) as writer:
            writer.write_table(table)
    else:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", "k,n\n" + "".join(f"{row['k']},{row['n']}\n" for row in table.to_pylist()))
    return buffer.getvalue()


def test_files_folders_and_globs_of_a_bucket(store: tuple[Any, str]) -> None:
    files, options = store
    table = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    rows = [("a", 1), ("b", 2), ("c", 3)]
    for kind in ("parquet", "arrow", "zip"):
        put(files, f"shop/one/t.{kind}", packed(table, kind))
        found = records(f"s3://shop/one/t.{kind}{options}", columns=Columns(key="k", weight="n"))
        assert found == rows
    put(files, "shop/days/day=2026-11-15/a.csv", b"k,n\nx,1\n")
    put(files, "shop/days/day=2026-11-16/b.csv", b"k,n\ny,2\n")
    put(files, "shop/days/_SUCCESS", b"done")
    assert records(f"s3://shop/days{options}", columns=Columns(key="k", user="day")) == [
        ("x", "2026-11-15"),
        ("y", "2026-11-16"),
    ]
    assert records(f"s3://shop/days/*/b.csv{options}", columns=Columns(key="k")) == [("y",)]
    assert "given twice" in refused(
        f"s3://shop/days{options}", f"s3://shop/days/*/b.csv{options}", columns=Columns(key="k")
    )


def test_what_is_not_there_or_not_allowed_gets_a_sentence_without_the_secret(store: tuple[Any, str]) -> None:
    files, options = store
    put(files, "shop/broken.parquet", b"PAR1\x00 but no more")
    for address, words in (
        (f"s3://shop/nowhere.csv{options}", "names no file"),
        (f"s3://nobucket/t.csv{options}", "names no file"),
        (f"s3://shop/broken.parquet{options}", "damaged"),
        (f"s3://ours:hush-hush@shop/nowhere.csv{options}", "names no file"),
    ):
        with pytest.raises(SourceError) as caught:
            list(open_source([address], Columns(key="k")))
        assert words in str(caught.value)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
