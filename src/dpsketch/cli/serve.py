"""The service: serve, its tokens and tickets, and copies of its store."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.exits import OutputExists
from dpsketch.cli.options import JsonOption
from dpsketch.cli.output import print_json, say, table
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.server.auth import Token
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
_DAY = 86_400
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _limit(flag: str, least: float, words: str) -> Any:
    """Return an option that sets a limit; the environment sets it too, as DPSKETCH_ and the flag's name."""
    return typer.Option(flag, envvar=f"DPSKETCH_{flag[2:].replace('-', '_').upper()}", min=least, help=words)


app = typer.Typer(invoke_without_command=True)
tokens = typer.Typer(help="Tokens, which say who may collect, read or administer.", no_args_is_help=True)
app.add_typer(tokens, name="token")
tickets = typer.Typer(
    help="Tickets, with which people report to a collection that asks for them.", no_args_is_help=True
)
app.add_typer(tickets, name="ticket")


@app.callback()
def serve(
    context: typer.Context,
    store: StoreOption = _STORE,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = 8321,
    mount: Annotated[
        list[Path] | None, typer.Option("--mount", envvar="DPSKETCH_MOUNT", help="A folder of .dps files to serve.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option("--ledger", envvar="DPSKETCH_LEDGER", help="Show the budgets of this ledger.")
    ] = None,
    public_read: Annotated[
        bool, typer.Option("--public-read", envvar="DPSKETCH_PUBLIC_READ", help="Everyone may read, without a token.")
    ] = False,
    public_collect: Annotated[
        bool,
        typer.Option(
            "--public-collect", envvar="DPSKETCH_PUBLIC_COLLECT", help="Everyone may report, without a token."
        ),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", envvar="DPSKETCH_ALLOW_ORIGIN", help="A web origin whose pages may report from browsers."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            envvar="DPSKETCH_ALLOW_HOST",
            help="A name to which the service answers; on loopback, its own names always.",
        ),
    ] = None,
    client_header: Annotated[
        str | None,
        typer.Option(
            "--client-header", envvar="DPSKETCH_CLIENT_HEADER", help="The header in which your proxy tells addresses."
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", envvar="DPSKETCH_SHARED", help="Other processes serve this PostgreSQL too.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", envvar="DPSKETCH_WORKERS", min=1, max=9999, help="How many share it; limits are divided."
        ),
    ] = 1,
    telemetry: Annotated[
        bool,
        typer.Option(
            "--telemetry", envvar="DPSKETCH_TELEMETRY", help="Send spans to OpenTelemetry: route, status, time."
        ),
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Show made-up releases and a collection, open to all.")] = False,
    max_body: Annotated[int, _limit("--max-body", 1024, "Largest binary batch of reports, in bytes.")] = 8 << 20,
    max_json: Annotated[int, _limit("--max-json", 1024, "Largest request in JSON, in bytes.")] = 256 << 10,
    max_release: Annotated[int, _limit("--max-release", 1024, "Largest upload, in bytes.")] = 64 << 20,
    max_batch: Annotated[int, _limit("--max-batch", 1, "Most reports in a request with a token.")] = 100_000,
    public_batch: Annotated[int, _limit("--public-batch", 1, "Most reports in a request without one.")] = 1,
    max_reports: Annotated[int, _limit("--max-reports", 1, "Most reports in a collection.")] = 100_000_000,
    collect_rate: Annotated[float, _limit("--collect-rate", 0.01, "Reports a second and token.")] = 1_000_000,
    address_rate: Annotated[
        float, _limit("--address-rate", 0.01, "Reports a second and address, without a token.")
    ] = 10,
    address_quota: Annotated[
        int, _limit("--address-quota", 1, "Reports a day, address and collection, without a token.")
    ] = 100,
    collection_rate: Annotated[
        float, _limit("--collection-rate", 0.01, "Reports a second and collection, without tokens.")
    ] = 1_000,
    read_rate: Annotated[float, _limit("--read-rate", 0.01, "Questions a second and caller.")] = 200,
    spec_rate: Annotated[float, _limit("--spec-rate", 0.01, "Fetches of specs a second and caller.")] = 2_000,
    compute_rate: Annotated[float, _limit("--compute-rate", 0.001, "Seconds of computing a second and caller.")] = 0.5,
    timeout: Annotated[float, _limit("--timeout", 0.1, "Seconds for a head, a body, an answer.")] = 30,
    max_connections: Annotated[int, _limit("--max-connections", 1, "Connections at a time.")] = 4096,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="From which level on to log.")] = LogLevel.INFO,
) -> None:
    """Collect reports and serve releases over HTTP, with a page for people. One process serves one store.

    The address goes to standard output, a log in JSON to standard error. SIGTERM or Ctrl-C ends it in order.
    """
    if context.invoked_subcommand is not None:
        if demo:
            raise InvalidInput("--demo has a store of its own, which ends with it; this command needs one that lasts.")
        context.obj = store
        return
    if demo and host not in _LOOPBACK:
        raise InvalidInput("--demo lets everyone read and report, so it listens on this machine only: drop --host.")
    from dpsketch.server import logs
    from dpsketch.server.app import create_app
    from dpsketch.server.process import serve as serve_app
    from dpsketch.server.settings import Limits, Settings

    limits = Limits(
        body=max_body,
        json_body=max_json,
        release_body=max_release,
        batch=max_batch,
        public_batch=public_batch,
        reports=max_reports,
        collect_rate=collect_rate,
        address_rate=address_rate,
        address_quota=address_quota,
        collection_rate=collection_rate,
        read_rate=read_rate,
        spec_rate=spec_rate,
        compute_rate=compute_rate,
        timeout=timeout,
        connections=max_connections,
    )
    open_to_all = [name for name, chosen in (("read", public_read), ("collect", public_collect)) if chosen or demo]
    logs.configure(log_level.value)
    with _demo_folder(demo) as folder:
        mounts = tuple(mount or ())
        if folder is not None:
            from dpsketch.server.demo import prepare

            logs.log("info", "making releases and a collection of made-up data; this takes some seconds")
            store = str(folder / _STORE)
            ledger, mounts = prepare(folder, store), (folder, *mounts)
        settings = Settings(
            store=store,
            mounts=mounts,
            ledger=ledger,
            public=frozenset(name for name in ("read", "collect") if name in open_to_all),
            origins=tuple(allow_origin or ()),
            # A page elsewhere may have its own name lead to this machine; to that name nothing here answers.
            hosts=(*_LOOPBACK, *(allow_host or ())) if host in _LOOPBACK else tuple(allow_host or ()),
            client_header=client_header,
            shared=shared,
            workers=workers,
            telemetry=telemetry,
            limits=limits,
        )
        serve_app(create_app(settings), host, port, settings, lambda url: print(url, flush=True))


@contextlib.contextmanager
def _demo_folder(wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dpsketch-demo-") as folder:
        yield Path(folder)


@app.command()
def backup(
    context: typer.Context,
    copy: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
) -> None:
    """Copy the store (SQLite) into a file, also while it is served: tokens, releases, collections and reports."""
    from dpsketch.server.backups import back_up

    if copy.exists():
        raise OutputExists(f"{copy} exists: name a new file.")
    back_up(context.obj, copy)
    say(f"The store is copied to {copy}.")


@app.command()
def restore(
    context: typer.Context,
    copy: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `dpsketch serve backup` wrote.")],
) -> None:
    """Replace the store (SQLite) by a backup. Stop the service first; what the store held is lost."""
    from dpsketch.server.backups import restore as put_back

    put_back(context.obj, copy)
    say(f"The store is what it was when {copy} was written.")


@tokens.command()
def create(
    context: typer.Context,
    scope: Annotated[ScopeName, typer.Option("--scope", help="What the token allows; admin allows all.")],
    name: Annotated[str, typer.Option("--name", help="Whose it is, for the list.")],
    collection: Annotated[
        str | None, typer.Option("--collection", metavar="ID", help="The one collection that it is for.")
    ] = None,
    days: Annotated[float | None, typer.Option("--days", min=0.0001, help="After so many days it expires.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and show it, this once: only its SHA-256 is kept."""
    from dpsketch.server.auth import Token

    if collection is not None and scope is ScopeName.ADMIN:
        raise InvalidInput("an admin token is for the whole service: leave --collection out, or make a read token.")
    expires = None if days is None else time.time() + days * _DAY
    token = Token(secrets.token_hex(8), name, scope.value, collection, expires)
    with _storage(context) as storage:
        _issue(storage, token, as_json)


def _issue(storage: Storage, token: Token, as_json: bool) -> None:
    """Make a token's secret, keep its digest and show it."""
    from dpsketch.server.auth import digest_of, new_token

    if token.collection is not None and all(row.id != token.collection for row in storage.collections()):
        raise InvalidInput("there is no collection with this id; its page and GET /v1/collections show ids.")
    secret = new_token()
    storage.add_token(token, digest_of(secret))
    if as_json:
        print_json({**token.to_json(), "token": secret})
    else:
        print(secret)
        say(f"Token {token.id} ({token.scope}, for {token.name}). Keep it now: it is not shown again.")


@tokens.command()
def rotate(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as the list shows it.")],
    hours: Annotated[float, typer.Option("--hours", min=0, help="For so long the old one still works.")] = 24,
    as_json: JsonOption = False,
) -> None:
    """Make a new token in place of one, with the same rights; the old one ends after a while."""
    with _storage(context) as storage:
        old = next((each for each in storage.tokens().values() if each.id == identifier), None)
        if old is None:
            raise InvalidInput("there is no token with this id; `dpsketch serve token list` shows them.")
        _issue(storage, replace(old, id=secrets.token_hex(8)), as_json)
        storage.expire_token(identifier, time.time() + hours * 3600)


@tokens.command("list")
def list_tokens(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the tokens: id, scope, name, the collection they are for, and when they expire."""
    with _storage(context) as storage:
        found = list(storage.tokens().values())
    if as_json:
        print_json({"tokens": [each.to_json() for each in found]})
    else:
        rows = [
            [each.id, each.scope, each.name, each.collection or "all", each.to_json()["expires"] or ""]
            for each in found
        ]
        table(["id", "scope", "name", "for", "until"], rows)


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


@tickets.command("issue")
def issue_tickets(
    context: typer.Context,
    collection: Annotated[str, typer.Option("--collection", metavar="ID", help="The collection that they are for.")],
    days: Annotated[float, typer.Option("--days", min=0.0001, help="After so many days they expire.")] = 30,
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1_000_000, help="How many, each of its own.")] = 1,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Whom it is for, in a name of your own; left out: a random one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make tickets for a collection and show them, one a line. None is kept: only its use leaves a mark."""
    from dpsketch.local.tickets import issue, new_subject

    if subject is not None and number > 1:
        raise InvalidInput(
            "--subject names one ticket: leave --number out. Two of one subject have one report together."
        )
    with _storage(context) as storage:
        found = next((row for row in storage.collections() if row.id == collection), None)
    if found is None or found.tickets is None:
        raise InvalidInput("there is no collection with this id that asks for tickets; GET /v1/collections shows them.")
    expires = time.time() + days * _DAY
    made = [
        issue(found.tickets.key, collection, subject=subject or new_subject(), expires=expires) for _ in range(number)
    ]
    if as_json:
        print_json({"collection": collection, "period": found.tickets.period, "tickets": made})
    else:
        print("\n".join(made))


@contextlib.contextmanager
def _storage(context: typer.Context) -> Iterator[Storage]:
    from dpsketch.server.storage import Storage

    storage = Storage(context.obj)
    try:
        yield storage
    finally:
        storage.close()
