"""Records in object stores: real servers of S3 and of Google storage, both from PyPI, through Arrow's file systems."""

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
from contextlib import contextmanager
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
    """A store, and how its addresses begin and end; with a secret in them, where a store takes one."""

    files: Any
    scheme: str
    options: str
    secret: str

    def address(self, path: str) -> str:
        return f"{self.scheme}{path}{self.options}"

    def secret_address(self, path: str) -> str:
        return f"{self.secret}{path}{self.options}"


@contextmanager
def served(*command: str, environment: dict[str, str]) -> Iterator[int]:
    """Run a server on a free port, which stands as PORT in its command."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, *(str(port) if word == "PORT" else word for word in command)],
        env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    """A server of S3 of our own."""
    pytest.importorskip("moto.server", reason="the dev extra installs moto's server")
    keys = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_EC2_METADATA_DISABLED": "true"}
    with served("-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT", environment=keys) as port:
        files = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        files.create_dir("shop")
        options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        yield Store(files, "s3://", options, "s3://ours:hush-hush@")


@pytest.fixture(scope="module")
def gs() -> Iterator[Store]:
    """A server of Google's storage of our own."""
    pytest.importorskip("gcp_storage_emulator", reason="the dev extra installs gcp-storage-emulator")
    command = "-m gcp_storage_emulator start --host 127.0.0.1 --port PORT --in-memory --default-bucket shop"
    with served(*command.split(), environment={}) as port:
        files = fs.GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http")
        options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=5"
        yield Store(files, "gs://anonymous@", options, "gs://anonymous@")


@pytest.fixture(params=["s3", pytest.param("gs", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


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


def test_files_folders_and_globs_of_a_bucket(store: Store) -> None:
    files = store.files
    table = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    rows = [("a", 1), ("b", 2), ("c", 3)]
    for kind in ("parquet", "arrow", "zip"):
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
        (store.secret_address("shop/nowhere.csv"), "names no file"),
    ):
        with pytest.raises(SourceError) as caught:
            list(open_source([address], Columns(key="k")))
        assert words in str(caught.value)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
