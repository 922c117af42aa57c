"""Records in an object store: a real server of S3, from PyPI, through Arrow's file systems."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from pyarrow import fs

from dpsketch.errors import SourceError
from dpsketch.sources import Columns, open_source
from reading import records, refused


@dataclass(frozen=True)
class Store:
    """A bucket, and what the addresses of its files end in."""

    files: Any
    options: str

    def address(self, path: str, secret: str = "") -> str:
        return f"s3://{secret}{path}{self.options}"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """A server of S3 of our own."""
    pytest.importorskip("moto.server", reason="the dev extra installs moto's server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            place = f"127.0.0.1:{port}"
            files = fs.S3FileSystem(
                endpoint_override=place, scheme="http", region="us-east-1", allow_bucket_creation=True
            )
            files.create_dir("shop")
            yield Store(files, f"?endpoint_override={place}&scheme=http&region=us-east-1")
        finally:
            server.kill()
            server.wait(10)


def put(files: Any, path: str, data: bytes) -> None:
    with files.open_output_stream(path, compression=None) as target:
        target.write(data)


def packed(table: pa.Table, kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "parquet":
        pa.parquet.write_table(table, buffer, row_group_size=2)
    else:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", "k,n\n" + "".join(f"{row['k']},{row['n']}\n" for row in table.to_pylist()))
    return buffer.getvalue()


def test_files_folders_and_globs_of_a_bucket(store: Store) -> None:
    files = store.files
    table = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    rows = [("a", 1), ("b", 2), ("c", 3)]
    for kind in ("parquet", "zip"):
        put(files, f"shop/one/t.{kind}", packed(table, kind))
        found = records(store.address(f"shop/one/t.{kind}"), columns=Columns(key="k", weight="n"))
        assert found == rows
    put(files, "shop/days/day=2026-11-15/a.csv", b"k,n\nx,1\n")
    put(files, "shop/days/day=2026-11-16/b.csv", b"k,n\ny,2\n")
    put(files, "shop/days/_SUCCESS", b"done")
    assert records(store.address("shop/days"), columns=Columns(key="k", user="day")) == [
        ("x", "2026-11-15"),
        ("y", "2026-11-16"),
    ]
    assert records(store.address("shop/days/*/b.csv"), columns=Columns(key="k")) == [("y",)]
    assert "given twice" in refused(
        store.address("shop/days"), store.address("shop/days/*/b.csv"), columns=Columns(key="k")
    )


def test_what_is_not_there_or_not_allowed_gets_a_sentence_without_the_secret(store: Store) -> None:
    files = store.files
    put(files, "shop/broken.parquet", b"PAR1\x00 but no more")
    for address, words in (
        (store.address("shop/nowhere.csv"), "names no file"),
        (store.address("nobucket/t.csv"), "names no file"),
        (store.address("shop/broken.parquet"), "damaged"),
        (store.address("shop/nowhere.csv", "ours:hush-hush@"), "names no file"),
    ):
        with pytest.raises(SourceError) as caught:
            list(open_source([address], Columns(key="k")))
        assert words in str(caught.value)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
