"""The service: serve, its tokens and tickets, and copies of its store."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dpsketch.cli.exits import OutputExists
from dpsketch.cli.options import FILE, Group, argument, json_option, option
from dpsketch.cli.output import print_json, say, table
from dpsketch.errors import InvalidInput
from dpsketch.server.settings import OPTIONS, Limits, Settings, variable_of

if TYPE_CHECKING:
    from dpsketch.server.storage import Scope, Storage, Token

__all__ = ["serve"]

_STORE = "dpsketch-service.db"
_DAY = 86_400
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _from_environment(flag: str, words: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that the environment sets too, as DPSKETCH_ and the name of the flag."""
    return option(flag, envvar=variable_of(flag[2:].replace("-", "_")), show_envvar=True, help=words, **settings)


def _limits(function: Any) -> Any:
    """Give the command the options of all limits."""
    for each in reversed(OPTIONS):
        least, words = each.metadata["least"], each.metadata["words"]
        number = click.IntRange(int(least)) if isinstance(each.default, int) else click.FloatRange(least)
        flag = "--" + each.name.replace("_", "-")
        function = _from_environment(flag, words, type=number, default=each.default, group="Limits")(function)
    return function


@click.group(cls=Group, invoke_without_command=True, no_args_is_help=False)
@_from_environment(
    "--store", "Store of the service: a SQLite file, or the address of a PostgreSQL database.", default=_STORE
)
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8321, help="Port to listen on; 0 takes a free one.")
@_from_environment("--mount", "Folder of .dps files to serve; several where it is repeated.", type=FILE, multiple=True)
@_from_environment("--ledger", "Ledger whose budgets are shown.")
@_from_environment("--public-read", "Permission for everyone to read, without a token.", is_flag=True)
@_from_environment("--public-collect", "Permission for everyone to report, without a token.", is_flag=True)
@_from_environment("--allow-origin", "Web origin whose pages may report from browsers.", multiple=True)
@_from_environment("--allow-host", "Name to which the service answers; on loopback its own always.", multiple=True)
@_from_environment("--client-header", "Header in which your proxy states the addresses of clients.")
@_from_environment("--shared", "Statement that other processes serve this PostgreSQL, too.", is_flag=True)
@_from_environment(
    "--workers", "Number of processes that share it; limits are divided.", type=click.IntRange(1, 9999), default=1
)
@_from_environment("--telemetry", "Spans for OpenTelemetry: route, status, time.", is_flag=True)
@option("--demo", is_flag=True, help="Made-up releases and a collection, open to all.")
@_limits
@option("--log-level", type=click.Choice(["info", "warning", "error"]), default="info", help="Lowest level to log.")
@click.pass_context
def serve(
    context: click.Context, /, store: str, host: str, port: int, mount: tuple[Path, ...], ledger: str | None,
    public_read: bool, public_collect: bool, allow_origin: tuple[str, ...], allow_host: tuple[str, ...],
    client_header: str | None, shared: bool, workers: int, telemetry: bool, demo: bool,
    log_level: Literal["info", "warning", "error"], **limits: Any,
) -> None:  # fmt: skip
    """Serve releases and collect reports over HTTP. One process serves one store, with pages for people.

    The address goes to standard output, a log in JSON to standard error. SIGTERM or Ctrl-C ends it in order.
    """
    from dpsketch.server import check_installed

    check_installed()
    if context.invoked_subcommand is not None:
        if demo:
            raise InvalidInput("--demo has a store of its own, which ends with it; this command needs one that lasts.")
        context.obj = store
        return
    if demo and host not in _LOOPBACK:
        raise InvalidInput("--demo lets everyone read and report, so it listens on this machine only: drop --host.")

    from dpsketch.server.app import create_app
    from dpsketch.server.process import serve as serve_app
    from dpsketch.server.telemetry import configure, log

    open_to_all = [name for name, chosen in (("read", public_read), ("collect", public_collect)) if chosen or demo]
    configure(log_level)
    with _demo_folder(demo) as folder:
        mounts = mount
        if folder is not None:
            from dpsketch.server.demo import prepare

            log("info", "making releases and a collection of made-up data; this takes some seconds")
            store = str(folder / _STORE)
            ledger, mounts = prepare(folder, store), (folder, *mounts)
        settings = Settings(
            store=store,
            mounts=mounts,
            ledger=ledger,
            public=frozenset(name for name in ("read", "collect") if name in open_to_all),
            origins=allow_origin,
            # A page elsewhere may have its own name lead to this machine; to that name nothing here answers.
            hosts=(*_LOOPBACK, *allow_host) if host in _LOOPBACK else allow_host,
            client_header=client_header,
            shared=shared,
            workers=workers,
            telemetry=telemetry,
            limits=Limits(**limits),
        )
        serve_app(create_app(settings), host, port, settings, lambda url: print(url, flush=True))


@contextlib.contextmanager
def _demo_folder(wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dpsketch-demo-") as folder:
        yield Path(folder)


@serve.command()
@argument("copy", "FILE", "File to write; it must not exist.", type=FILE)
@click.pass_obj
def backup(store: str, copy: Path) -> None:
    """Copy the store (SQLite) into a file, also while it is served: tokens, releases, collections and reports."""
    from dpsketch.server.database import back_up

    if copy.exists():
        raise OutputExists(f"{copy} exists: name a new file.")
    back_up(store, copy)
    say(f"The store is copied to {copy}.")


@serve.command()
@argument("copy", "FILE", "File that `dpsketch serve backup` wrote.", type=FILE)
@click.pass_obj
def restore(store: str, copy: Path) -> None:
    """Replace the store (SQLite) by a backup. Stop the service first; what the store held is lost."""
    from dpsketch.server.database import restore as put_back

    put_back(store, copy)
    say(f"The store is what it was when {copy} was written.")


@serve.group()
def token() -> None:
    """Tokens, which say who may collect, read or administer."""


@serve.group()
def ticket() -> None:
    """Tickets, with which people report to a collection that asks for them."""


_identifier = argument("identifier", "ID", "Id of the token, as the list shows it.")


@token.command()
@option(
    "--scope", type=click.Choice(["collect", "read", "admin"]), required=True, help="Right of the token; admin is all."
)
@option("--name", required=True, help="Name of its owner, for the list.")
@option("--collection", metavar="ID", help="Collection that it is for; all by default.")
@option("--days", type=click.FloatRange(0.0001), help="Number of days after which it expires.")
@json_option
@click.pass_obj
def create(store: str, scope: Scope, name: str, collection: str | None, days: float | None, as_json: bool) -> None:
    """Make a token and show it, this once: only its SHA-256 is kept."""
    from dpsketch.server.storage import Token

    if collection is not None and scope == "admin":
        raise InvalidInput("an admin token is for the whole service: leave --collection out, or make a read token.")
    expires = None if days is None else time.time() + days * _DAY
    token = Token(secrets.token_hex(8), name, scope, collection, expires)
    with _storage(store) as storage:
        _issue(storage, token, as_json)


def _issue(storage: Storage, token: Token, as_json: bool) -> None:
    """Make a token's secret, keep its digest and show it."""
    from dpsketch.server.storage import digest_of, new_token

    if token.collection is not None and all(row.id != token.collection for row in storage.collections()):
        raise InvalidInput("there is no collection with this id; its page and GET /v1/collections show ids.")
    secret = new_token()
    storage.add_token(token, digest_of(secret))
    if as_json:
        print_json({**token.to_json(), "token": secret})
    else:
        print(secret)
        say(f"Token {token.id} ({token.scope}, for {token.name}). Keep it now: it is not shown again.")


@token.command()
@_identifier
@option("--hours", type=click.FloatRange(0), default=24.0, help="Number of hours for which the old one still works.")
@json_option
@click.pass_obj
def rotate(store: str, identifier: str, hours: float, as_json: bool) -> None:
    """Make a new token in place of one, with the same rights; the old one ends after a while."""
    with _storage(store) as storage:
        old = next((each for each in storage.tokens().values() if each.id == identifier), None)
        if old is None:
            raise InvalidInput("there is no token with this id; `dpsketch serve token list` shows them.")
        _issue(storage, replace(old, id=secrets.token_hex(8)), as_json)
        storage.expire_token(identifier, time.time() + hours * 3600)


@token.command("list")
@json_option
@click.pass_obj
def list_tokens(store: str, as_json: bool) -> None:
    """List the tokens: id, scope, name, the collection they are for, and when they expire."""
    with _storage(store) as storage:
        found = list(storage.tokens().values())
    if as_json:
        print_json({"tokens": [each.to_json() for each in found]})
    else:
        rows = [
            [each.id, each.scope, each.name, each.collection or "all", each.to_json()["expires"] or ""]
            for each in found
        ]
        table(["id", "scope", "name", "for", "until"], rows)


@token.command()
@_identifier
@click.pass_obj
def revoke(store: str, identifier: str) -> None:
    """Make a token useless; a running service takes note within seconds."""
    with _storage(store) as storage:
        if not storage.revoke_token(identifier):
            raise InvalidInput("there is no token with this id; `dpsketch serve token list` shows them.")
    say(f"Token {identifier} is revoked.")


@ticket.command()
@option("--collection", metavar="ID", required=True, help="Collection that they are for.")
@option("--days", type=click.FloatRange(0.0001), default=30.0, help="Number of days after which they expire.")
@option("--number", "-n", type=click.IntRange(1, 1_000_000), default=1, help="Number of tickets, each of its own.")
@option("--subject", help="Name of your own for whom it is; a random one by default.")
@json_option
@click.pass_obj
def issue(store: str, collection: str, days: float, number: int, subject: str | None, as_json: bool) -> None:
    """Make tickets for a collection and show them, one a line. None is kept: only its use leaves a mark."""
    from dpsketch.local import tickets

    if subject is not None and number > 1:
        raise InvalidInput(
            "--subject names one ticket: leave --number out. Two of one subject have one report together."
        )
    with _storage(store) as storage:
        found = next((row for row in storage.collections() if row.id == collection), None)
    if found is None or found.tickets is None:
        raise InvalidInput("there is no collection with this id that asks for tickets; GET /v1/collections shows them.")
    expires = time.time() + days * _DAY
    made = [
        tickets.issue(found.tickets.key, collection, subject=subject or tickets.new_subject(), expires=expires)
        for _ in range(number)
    ]
    if as_json:
        print_json({"collection": collection, "period": found.tickets.period, "tickets": made})
    else:
        print("\n".join(made))


@contextlib.contextmanager
def _storage(store: str) -> Iterator[Storage]:
    from dpsketch.server.storage import Storage

    storage = Storage(store)
    try:
        yield storage
    finally:
        storage.close()
