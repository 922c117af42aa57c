"""Records in object stores: real servers of S3 and of Google storage, both from PyPI, through Arrow's file systems."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from dpsketch.sources import Columns
from reading import records, refused, write
from serving import wait_for


@dataclass(frozen=True)
class Store:
    """A store, and how its addresses begin and end; with a secret in them, where a store takes one."""

    files: Any
    scheme: str
    options: str
    secret: str

    def address(self, path: str, *, secret: bool = False) -> str:
        return f"{self.secret if secret else self.scheme}{path}{self.options}"

    def put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(f"shop/{path}", compression=None) as target:
            target.write(data)


@contextmanager
def served(*command: str) -> Iterator[int]:
    """Run a server on a free port, which stands as PORT in its command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [str(port) if word == "PORT" else word for word in command]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:  # fmt: skip
        try:
            wait_for(lambda: _listens(port))
            yield port
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    """A server of S3 of our own."""
    pytest.importorskip("moto.server", reason="the dev extra installs moto[server]")
    keys = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        with served("-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT") as port:
            place = f"127.0.0.1:{port}"
            files = fs.S3FileSystem(
                endpoint_override=place, scheme="http", region="us-east-1", allow_bucket_creation=True
            )
            files.create_dir("shop")
            options = f"?endpoint_override={place}&scheme=http&region=us-east-1"
            yield Store(files, "s3://", options, "s3://ours:hush-hush@")


@pytest.fixture(scope="module")
def gs() -> Iterator[Store]:
    """A server of Google's storage of our own."""
    pytest.importorskip("gcp_storage_emulator", reason="the dev extra installs gcp-storage-emulator")
    command = "-m gcp_storage_emulator start --host 127.0.0.1 --port PORT --in-memory --default-bucket shop"
    with served(*command.split()) as port:
        files = fs.GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http")
        options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=5"
        yield Store(files, "gs://anonymous@", options, "gs://anonymous@")


@pytest.fixture(params=["s3", pytest.param("gs", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


def test_files_folders_and_globs_of_a_bucket(store: Store, tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    for kind in ("parquet", "arrow", "csv.gz"):
        store.put(f"one/t.{kind}", write(table, tmp_path / f"t.{kind}").read_bytes())
        found = records(store.address(f"shop/one/t.{kind}"), columns=Columns(key="k", weight="n"))
        assert found == [("a", 1), ("b", 2), ("c", 3)]
    store.put("days/day=2026-11-15/a.csv", b"k,n\nx,1\n")
    store.put("days/day=2026-11-16/b.csv", b"k,n\ny,2\n")
    store.put("days/_SUCCESS", b"done")
    whole, one = store.address("shop/days"), store.address("shop/days/*/b.csv")
    assert records(whole, columns=Columns(key="k", user="day")) == [("x", "2026-11-15"), ("y", "2026-11-16")]
    assert records(one, columns=Columns(key="k")) == [("y",)]
    assert "given twice" in refused(whole, one)


def test_what_is_not_there_or_not_allowed_gets_a_sentence_without_the_secret(store: Store) -> None:
    store.put("broken.parquet", b"PAR1\x00 but no more")
    for address, words in (
        (store.address("shop/nowhere.csv"), "names no file"),
        (store.address("nobucket/t.csv"), "names no file"),
        (store.address("shop/broken.parquet"), "damaged"),
        (store.address("shop/nowhere.csv", secret=True), "names no file"),
    ):
        message = refused(address)
        assert words in message
        assert "hush" not in message
