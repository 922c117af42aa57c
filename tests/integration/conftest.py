"""What the integration tests start: PostgreSQL, a Spark cluster, Chromium, the demo; on loopback, gone at their end."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from browsing import DEMO, Visit, service, visit
from serving import Server, new_token


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Yield ``postgresql://…`` of an empty database; every test makes (and names) its own tables."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("pg_ctl") or (installed[-1] if installed else None)
    if found is None:
        pytest.skip("PostgreSQL is not installed: pg_ctl is neither on PATH nor under /usr/lib/postgresql")
    binaries = Path(found).resolve().parent
    prefix: list[str] = []
    # A short path: the socket's name may hold about 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dpg-", dir="/tmp"))
    if os.geteuid() == 0:
        try:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        except KeyError:
            folder.rmdir()
            pytest.skip("PostgreSQL refuses to run as root, and there is no user 'postgres' to run it as")
        prefix = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        # pg_ctl's server inherits the outputs: a pipe would never close, a file does not wait.
        command = [*prefix, str(binaries / program), "-D", str(folder / "data"), *arguments]
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read().decode(errors='replace')}"

    try:
        run("initdb", "-A", "trust", "-U", "dpsketch", "-E", "UTF8", "--no-sync")
        port = _free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://dpsketch@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(*command: str, folder: Path, until: str) -> Iterator[None]:
    """Run one of Spark's own services until the block ends; the block begins when its log says so."""
    log = folder / "log"
    folder.mkdir()
    with log.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + 180
            while until not in log.read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[1]} did not start:\n{log.read_text(errors='replace')}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster: a master, and two workers with one core each that take each other for different machines.

    Only on another machine than its first run does Spark run a slow task a second time.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed, so that no Spark can be started")
    import pyspark
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = str(_free_port())
    address = f"spark://127.0.0.1:{port}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1024m",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "3",
        "spark.speculation.efficiency.enabled": "false",
    }
    with pytest.MonkeyPatch.context() as patch, ExitStack() as services:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
        patch.setenv("SPARK_DAEMON_MEMORY", "256m")
        master = ("--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        services.enter_context(
            _running(program, "org.apache.spark.deploy.master.Master", *master, folder=folder / "master", until="ALIVE")
        )
        for host in ("127.0.0.1", "127.0.0.2"):
            worker = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", address)
            services.enter_context(
                _running(
                    program, "org.apache.spark.deploy.worker.Worker", *worker,
                    folder=folder / host, until="Successfully registered",
                )
            )  # fmt: skip
        builder = SparkSession.builder.appName("dpsketch tests").master(address)
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens at now."""
    return _free_port()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start services, each on a store of its own; ``environment["token"]`` is its administrator's."""
    with ExitStack() as running:

        def started(*options: str, store: str = "") -> Server:
            folder = tmp_path_factory.mktemp("service")
            store = store or str(folder / "service.db")
            token = new_token(store, "admin")
            return running.enter_context(Server(folder, ["--store", store, *options], {"token": token}))

        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the page in a browser: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium)
        yield running
        running.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a demo of the service."""
    with service(tmp_path_factory.mktemp("demo") / "log", *DEMO) as address:
        yield address


@pytest.fixture
def tab(browser: Any, demo: str) -> Iterator[Visit]:
    """A tab at the demo."""
    with visit(browser, demo) as opened:
        yield opened


@pytest.fixture
def database(postgresql_url: str) -> str:
    """A PostgreSQL database of the test's own."""
    import psycopg

    name = f"own_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    return postgresql_url.rpartition("/")[0] + f"/{name}"
