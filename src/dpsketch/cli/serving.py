"""The service: serve, and its tokens."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.options import JsonOption
from dpsketch.cli.output import print_json, say, table
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.server.storage import Storage

__all__ = ["app"]


class ScopeName(StrEnum):
    """What a token allows."""

    COLLECT = "collect"
    READ = "read"
    ADMIN = "admin"


class LogLevel(StrEnum):
    """From which level on the log is written."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


StoreOption = Annotated[
    str,
    typer.Option("--store", envvar="DPSKETCH_STORE", help="Where all is kept: a SQLite file, or postgresql://…"),
]
_STORE = "dpsketch-service.db"

app = typer.Typer(invoke_without_command=True)
tokens = typer.Typer(help="Tokens, which say who may collect, read or administer.", no_args_is_help=True)
app.add_typer(tokens, name="token")


@app.callback()
def serve(
    context: typer.Context,
    store: StoreOption = _STORE,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = 8321,
    mount: Annotated[list[Path] | None, typer.Option("--mount", help="A folder of .dps files to serve.")] = None,
    ledger: Annotated[str | None, typer.Option("--ledger", help="Show the budgets of this ledger.")] = None,
    public_read: Annotated[bool, typer.Option("--public-read", help="Everyone may read, without a token.")] = False,
    public_collect: Annotated[
        bool, typer.Option("--public-collect", help="Everyone may report, without a token.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None, typer.Option("--allow-origin", help="A web origin whose pages may report from browsers.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Show made-up releases and a collection, open to all.")] = False,
    max_body: Annotated[int, typer.Option("--max-body", min=1024, help="Largest request, in bytes.")] = 8 << 20,
    max_release: Annotated[int, typer.Option("--max-release", min=1024, help="Largest upload, in bytes.")] = 64 << 20,
    max_batch: Annotated[int, typer.Option("--max-batch", min=1, help="Most reports in a request.")] = 100_000,
    collect_rate: Annotated[
        float, typer.Option("--collect-rate", min=0.01, help="Reports' requests a second and token.")
    ] = 20_000,
    read_rate: Annotated[float, typer.Option("--read-rate", min=0.01, help="Other requests a second and token.")] = 200,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for a head, a body, an answer.")] = 30,
    max_connections: Annotated[int, typer.Option("--max-connections", min=1, help="Connections at a time.")] = 4096,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="From which level on to log.")] = LogLevel.INFO,
) -> None:
    """Collect reports and serve releases over HTTP, with a page for people. One process serves one store.

    The address goes to standard output, a log in JSON to standard error. SIGTERM or Ctrl-C ends it in order.
    """
    if context.invoked_subcommand is not None:
        if demo:
            raise InvalidInput("--demo has a store of its own, which ends with it; tokens need one that lasts.")
        context.obj = store
        return
    if demo and host not in ("127.0.0.1", "::1", "localhost"):
        raise InvalidInput("--demo lets everyone read and report, so it listens on this machine only: drop --host.")
    from dpsketch.server import logs
    from dpsketch.server.app import create_app
    from dpsketch.server.process import serve as serve_app
    from dpsketch.server.settings import Limits, Settings

    limits = Limits(
        body=max_body,
        release_body=max_release,
        batch=max_batch,
        collect_rate=collect_rate,
        read_rate=read_rate,
        timeout=timeout,
        connections=max_connections,
    )
    open_to_all = [name for name, chosen in (("read", public_read), ("collect", public_collect)) if chosen or demo]
    logs.configure(log_level.value)
    with _demo_folder(demo) as folder:
        mounts = tuple(mount or ())
        if folder is not None:
            from dpsketch.server.demo import prepare

            store = str(folder / _STORE)
            ledger, mounts = prepare(folder, store), (folder, *mounts)
        settings = Settings(
            store=store,
            mounts=mounts,
            ledger=ledger,
            public=frozenset(name for name in ("read", "collect") if name in open_to_all),
            origins=tuple(allow_origin or ()),
            limits=limits,
        )
        serve_app(create_app(settings), host, port, limits, lambda url: print(url, flush=True))


@contextlib.contextmanager
def _demo_folder(wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dpsketch-demo-") as folder:
        yield Path(folder)


@tokens.command()
def create(
    context: typer.Context,
    scope: Annotated[ScopeName, typer.Option("--scope", help="What the token allows; admin allows all.")],
    name: Annotated[str, typer.Option("--name", help="Whose it is, for the list.")],
    as_json: JsonOption = False,
) -> None:
    """Make a token and show it, this once: only its SHA-256 is kept."""
    from dpsketch.server.auth import Token, digest_of, new_token

    secret = new_token()
    token = Token(secrets.token_hex(8), name, scope.value)
    with _storage(context) as storage:
        storage.add_token(token, digest_of(secret))
    if as_json:
        print_json({"id": token.id, "name": token.name, "scope": token.scope, "token": secret})
    else:
        print(secret)
        say(f"Token {token.id} ({token.scope}, for {token.name}). Keep it now: it is not shown again.")


@tokens.command("list")
def list_tokens(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the tokens: id, scope and name."""
    with _storage(context) as storage:
        found = list(storage.tokens().values())
    if as_json:
        print_json({"tokens": [{"id": each.id, "name": each.name, "scope": each.scope} for each in found]})
    else:
        table(["id", "scope", "name"], [[each.id, each.scope, each.name] for each in found])


@tokens.command()
def revoke(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as the list shows it.")],
) -> None:
    """Make a token useless; a running service takes note within seconds."""
    with _storage(context) as storage:
        if not storage.revoke_token(identifier):
            raise InvalidInput("there is no token with this id; `dpsketch serve token list` shows them.")
    say(f"Token {identifier} is revoked.")


@contextlib.contextmanager
def _storage(context: typer.Context) -> Iterator[Storage]:
    from dpsketch.server.storage import Storage

    storage = Storage(context.obj)
    try:
        yield storage
    finally:
        storage.close()
