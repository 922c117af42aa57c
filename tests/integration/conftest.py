"""A real PostgreSQL for the integration tests: private, on loopback, gone when the session ends."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _find_binaries() -> Path | None:
    """Return the folder that holds initdb and pg_ctl, the newest version first."""
    on_path = shutil.which("initdb")
    if on_path is not None and (Path(on_path).resolve().parent / "pg_ctl").exists():
        return Path(on_path).resolve().parent

    def version(folder: Path) -> int:
        number = re.match(r"\d+", folder.parent.name)
        return int(number.group()) if number else 0

    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=version, default=None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Yield ``postgresql://…`` of an empty database; every test makes (and names) its own tables."""
    binaries = _find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: initdb is neither on PATH nor under /usr/lib/postgresql")
    prefix: list[str] = []
    # A short path: the socket's name may hold about 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dpg-", dir="/tmp"))
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            folder.rmdir()
            pytest.skip("PostgreSQL refuses to run as root, and there is no user 'postgres' to run it as")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        prefix = ["runuser", "-u", "postgres", "--"]
    data, log = folder / "data", folder / "log"

    def run(*command: str) -> None:
        # pg_ctl's server inherits the outputs: a pipe would never close, a file does not wait.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [*prefix, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=120
            )
            if done.returncode:
                output.seek(0)
                words = output.read().decode(errors="replace")
                log_words = log.read_text(errors="replace") if log.exists() else ""
                raise RuntimeError(f"{command[0]} failed:\n{words}\n{log_words}")

    try:
        run(str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "dpsketch", "-E", "UTF8", "--no-sync")
        for attempt in range(3):  # another process may take the port between the probe and the start
            port = _free_port()
            options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
            try:
                run(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(log), "-o", options, "start")
                break
            except RuntimeError:
                if attempt == 2:
                    raise
        try:
            yield f"postgresql://dpsketch@127.0.0.1:{port}/postgres"
        finally:
            run(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
