"""A disk that is full: whoever reports is told so, nothing that was acknowledged is lost, and room mends it.

The store lies on a file system of a few megabytes, made for the test; that takes root. PostgreSQL has its database in a
tablespace there, so that its own log has room.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from dpsketch import local
from serving import OPEN, PROTOCOL, Server, new_collection, new_token

OCTETS = {"Content-Type": "application/octet-stream"}
BATCH = 2000


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of its own, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a file system; the disk cannot be filled")
    folder = Path(tempfile.mkdtemp(prefix="dpsketch-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "dpsketch-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("this machine makes no file systems; the disk cannot be filled")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path, left: int) -> Path:
    """Take all but so many bytes of a file system; return the file to remove for room."""
    state = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - left)))
    return ballast


class Device:
    """Sends batches, and remembers which were acknowledged."""

    def __init__(self, server: Server, address: str) -> None:
        self.server = server
        self.address = address
        self.acknowledged: set[bytes] = set()

    def send(self, batch: list[bytes]) -> httpx.Response:
        answer = self.server.client().post(f"{self.address}/reports", content=b"".join(batch), headers=OCTETS)
        if answer.status_code == 202:
            self.acknowledged |= {each[9:25] for each in batch}
        return answer

    def held(self, folder: Path) -> set[bytes]:
        path = folder / f"{uuid.uuid4().hex}.dps"
        path.write_bytes(self.server.client().get(f"{self.address}/export").content)
        ids = np.asarray(local.load(path).to_document().arrays["ids"])
        return {row.tobytes() for row in ids.astype("<u8")}


def until_full(device: Device) -> tuple[list[bytes], httpx.Response]:
    """Report until the disk is full; return what was refused, and how."""
    for _ in range(200):
        batch = PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * BATCH))
        answer = device.send(batch)
        if answer.status_code != 202:
            return batch, answer
    raise AssertionError("the disk was never full")


def a_full_disk_is_survived(folder: Path, store: str, disk: Path) -> None:
    token = new_token(store, "admin")
    server = Server(folder, ["--store", store, *OPEN]).start()
    try:
        device = Device(server, f"/v1/collections/{new_collection(server.client(token))}")
        assert device.send(PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * BATCH))).status_code == 202
        ballast = fill(disk, 400_000)
        refused, answer = until_full(device)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "storage_failed")
        assert "disk is full" in error["message"]
        assert answer.headers["retry-after"]
        # What needs no disk goes on, and readers are answered.
        assert server.client().get("/health").status_code == 200
        assert server.client().get(f"{device.address}/estimate?key=apple").status_code == 200
        assert device.held(folder) == device.acknowledged
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        ballast.unlink()
        server.start()
        assert device.held(folder) == device.acknowledged
        # It is full once more, and gets room while the service runs.
        ballast = fill(disk, 400_000)
        refused, answer = until_full(device)
        assert answer.status_code == 503
        ballast.unlink()
        end = time.monotonic() + 20
        while device.send(refused).status_code != 202:
            assert time.monotonic() < end, "room did not mend it"
            time.sleep(0.2)
        assert device.held(folder) == device.acknowledged
        assert server.client().get(device.address).json()["reports"] == len(device.acknowledged)
    finally:
        assert server.stop() == 0
    server.start()
    try:
        assert device.held(folder) == device.acknowledged
    finally:
        assert server.stop() == 0
    assert any(line["event"] == "commit failed" and "disk is full" in line["reason"] for line in server.lines())


def test_a_full_disk_loses_nothing_on_sqlite(tmp_path: Path) -> None:
    with small_disk(12) as disk:
        a_full_disk_is_survived(tmp_path, str(disk / "store.db"), disk)


def test_a_full_disk_loses_nothing_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    import psycopg

    with small_disk(32) as disk:
        owner = pwd.getpwnam("postgres")
        home = disk / "tablespace"
        home.mkdir()
        os.chown(home, owner.pw_uid, owner.pw_gid)
        name = f"full_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '{home}'")
            connection.execute(f"CREATE DATABASE {name} TABLESPACE {name}")
        try:
            a_full_disk_is_survived(tmp_path, postgresql_url.rpartition("/")[0] + f"/{name}", disk)
        finally:
            with psycopg.connect(postgresql_url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
                connection.execute(f"DROP TABLESPACE {name}")
