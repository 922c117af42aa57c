"""A disk that is full: whoever reports is told so, nothing that was acknowledged is lost, and room mends it.

The store lies on a file system of a few megabytes, made for the test; that takes root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from dpsketch import local
from serving import OPEN, PROTOCOL, Server, new_collection, new_token, wait_for


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of its own, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a file system; the disk cannot be filled")
    folder = Path(tempfile.mkdtemp(prefix="dpsketch-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0755", "dpsketch-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("this machine makes no file systems; the disk cannot be filled")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def test_a_full_disk_loses_nothing(tmp_path: Path, disk: Path) -> None:
    """Full, killed, and mended by room while the service runs."""
    store, ballast = str(disk / "store.db"), disk / "ballast"
    token = new_token(store, "admin")
    acknowledged: set[bytes] = set()

    def send(batch: list[bytes]) -> httpx.Response:
        octets = {"Content-Type": "application/octet-stream"}
        answer = server.client().post(f"{address}/reports", content=b"".join(batch), headers=octets)
        if answer.status_code == 202:
            acknowledged.update(each[9:25] for each in batch)
        return answer

    def held() -> set[bytes]:
        exported = tmp_path / "exported.dps"
        exported.write_bytes(server.client().get(f"{address}/export").content)
        ids = np.asarray(local.load(exported).to_document().arrays["ids"])
        return {row.tobytes() for row in ids.astype("<u8")}

    def fill() -> list[bytes]:
        """Take all but a little of the disk, report until nothing more fits, and return what was refused."""
        state = os.statvfs(disk)
        ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - 400_000)))
        for _ in range(200):
            batch = PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 2000))
            answer = send(batch)
            if answer.status_code != 202:
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (503, "storage_failed")
                assert "disk is full" in error["message"]
                assert answer.headers["retry-after"]
                return batch
        raise AssertionError("the disk was never full")

    with Server(tmp_path, ["--store", store, *OPEN]) as server:
        address = f"/v1/collections/{new_collection(server.client(token))}"
        fill()
        # What needs no disk goes on, and readers are answered.
        assert server.client().get("/health").status_code == 200
        assert server.client().get(f"{address}/estimate?key=apple").status_code == 200
        assert held() == acknowledged
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        ballast.unlink()
        server.start()
        assert held() == acknowledged
        refused = fill()
        ballast.unlink()
        wait_for(lambda: send(refused).status_code == 202)
        assert held() == acknowledged
        assert server.client().get(address).json()["reports"] == len(acknowledged)
