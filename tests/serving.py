"""Start the service as a process of its own, on a free port of this machine, and speak to it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner

from dpsketch import local
from dpsketch.cli.app import app
from dpsketch.server import create_app
from dpsketch.server.settings import Settings
from dpsketch.server.storage import Scope, Storage, Token, digest_of
from dpsketch.server.storage import new_token as fresh_token

PROTOCOL = local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text")

OPEN = [
    "--public-read", "--public-collect", "--public-batch", "100000", "--address-rate", "1000000", "--address-quota",
    "100000000", "--collection-rate", "1000000", "--compute-rate", "100",
]  # fmt: skip
"""Everyone may read and report, as much as they like: for tests of something else than limits."""


def dpsketch(*arguments: object) -> str:
    """Run the command line in this process and return what it prints."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def new_token(store: str, scope: Scope) -> str:
    """Make a token as the command line does, without the start of a process."""
    secret = fresh_token()
    storage = Storage(store)
    storage.add_token(Token(secrets.token_hex(8), scope, scope), digest_of(secret))
    storage.close()
    return secret


@dataclass
class Server:
    """One running service; ``log`` is the file its standard error goes to."""

    folder: Path
    options: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    url: str = ""
    process: subprocess.Popen[str] | None = None
    clients: dict[str | None, httpx.Client] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "service.log"

    def start(self) -> Server:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dpsketch", "serve", "--port", "0", *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env={**os.environ, **self.environment},
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.log.read_text()
        return self

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit code."""
        if self.process is None:
            return 0
        for client in self.clients.values():
            client.close()
        self.clients.clear()
        process, self.process = self.process, None
        process.send_signal(number)
        code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def client(self, token: str | None = None) -> httpx.Client:
        if token not in self.clients:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            self.clients[token] = httpx.Client(base_url=self.url, headers=headers, timeout=60)
        return self.clients[token]

    def connect(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=20)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def new_collection(client: httpx.Client, **more: Any) -> str:
    asked = {"name": "Fruit", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"], **more}
    answer = client.post("/v1/collections", json=asked)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def objects(number: int, item: str = "apple") -> list[dict[str, Any]]:
    return PROTOCOL.to_objects(PROTOCOL.report([[item]] * number))


@asynccontextmanager
async def inside(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application in this process, without a socket, and speak to it."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
