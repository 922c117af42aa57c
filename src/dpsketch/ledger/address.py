"""Where a ledger lives, as a URL tells it: ``sqlite:///path`` or ``postgresql://user:password@host:port/database?…``.

A ``+driver`` after the name of the database is allowed and means nothing. User, password, database and what follows the
question mark may be percent-encoded. What the parts mean is fixed: whoever gave a ledger's URL once finds the same
ledger with it ever after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from dpsketch.errors import InvalidInput

__all__ = ["Address", "parse", "shown"]


class Address(NamedTuple):
    """The parts of a URL; what it leaves out is empty."""

    backend: str
    user: str
    password: str
    host: str
    port: str
    database: str
    query: list[tuple[str, str]]

    def options(self) -> dict[str, str]:
        """Return the connection's options by the names that PostgreSQL's library gives them.

        Those of the query come first, as in ``postgresql:///budget?host=/run/postgresql``. Several hosts are
        ``host=a,b&port=1,2`` or ``host=a:1&host=b:2``.
        """
        stated: dict[str, list[str]] = {}
        for name, value in self.query:
            stated.setdefault(name, []).append(value)
        hosts, ports = stated.get("host", []), stated.get("port", [])
        for name, values in stated.items():
            if len(values) > 1 and name not in ("host", "port"):
                raise InvalidInput(f"a ledger's URL states {name!r} more than once.")
        if hosts and not ports and (len(hosts) > 1 or re.fullmatch(r"[a-zA-Z0-9.-]*:[0-9]*", hosts[0])):
            pairs = [host.partition(":")[::2] for host in hosts]
            hosts, ports = [host for host, _ in pairs], [port for _, port in pairs]
        given = {
            "user": self.user,
            "password": self.password,
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            **{name: values[0] for name, values in stated.items()},
        }
        listed = ",".join(hosts)
        if hosts:
            given["host"] = listed
        if any(ports) or "," in listed:  # the port of the address is its own host's, and that of PGPORT nobody's
            given["port"] = ",".join(ports) or "," * listed.count(",")
        return {name: value for name, value in given.items() if value or (name == "host" and hosts)}


def parse(url: str) -> Address:
    """Take a URL apart.

    Raises
    ------
    InvalidInput
        It is none.
    """
    scheme, _, rest = url.partition("://")
    if not re.fullmatch(r"[\w+]+", scheme):
        raise InvalidInput("a ledger is a path, sqlite:///path or postgresql://user@host/database.")
    user, password, rest = _without_user(rest)
    rest, _, query = rest.partition("?")
    server, _, database = rest.partition("/")
    host, port = _host_and_port(server)
    if port and not (port.isascii() and port.isdigit()):
        raise InvalidInput("a port in a ledger's URL is a number, as in postgresql://user@host:5432/database.")
    if "@" in host[1:]:  # the end of a password, which no message may show
        raise InvalidInput("a user or a password in a ledger's URL has its '@' written as %40.")
    return Address(
        scheme.partition("+")[0], unquote(user), unquote(password), host, port, unquote(database), parse_qsl(query)
    )


def _without_user(rest: str) -> tuple[str, str, str]:
    """Return user, password, and what comes after them: a user ends at a colon or at the last ``@`` before a slash."""
    found = re.match(r"([^:/]*):([^@]*)@", rest) or re.match(r"([^:/]*)()@", rest)
    return ("", "", rest) if found is None else (found[1], found[2], rest[found.end() :])


def _host_and_port(server: str) -> tuple[str, str]:
    if found := re.match(r"\[(.+)\](?::(.*))?", server):
        return found[1], found[2] or ""
    host, _, port = server.partition(":")
    return host, port


def shown(options: Mapping[str, str]) -> str:
    """Return the address of a database that such options lead to, for people: nothing of it is a secret."""
    user, host = quote(options.get("user", "")), options.get("host", "")
    who = f"{user}{':***' if 'password' in options else ''}"
    where = f"[{host}]" if ":" in host else quote(host, safe=",")
    port = f":{options['port']}" if "port" in options else ""
    return f"postgresql://{who}{'@' if who else ''}{where}{port}/{options.get('dbname', '')}"
