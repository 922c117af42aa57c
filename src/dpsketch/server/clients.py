"""Where a request came from: the address that limits count by, the Host it asks for, the site that sent it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

from dpsketch.server.refusals import Refused
from dpsketch.server.settings import Settings

__all__ = ["RawHeaders", "address_of", "check_host", "check_site", "network_of"]

RawHeaders = Mapping[bytes, bytes]
"""A request's headers as they came, by their names in lower case; of several with one name, the last."""

_UNCHANGING = ("GET", "HEAD", "OPTIONS")
_PROBES = ("/health", "/ready")  # load balancers ask these by a machine's address


def address_of(scope: Scope, headers: RawHeaders, header: bytes | None) -> str:
    """Return the address that limits count by: an IPv4 address, or an IPv6 network of 64 bits, which one person has.

    A proxy's header is believed where the settings name it. Of a list, the last is what our own proxy added; all before
    it is the caller's word.
    """
    told = headers.get(header, b"").rpartition(b",")[2] if header is not None else b""
    client = scope.get("client")
    return network_of(told.decode("latin-1").strip() or (client[0] if client else ""))


@lru_cache(4096)
def network_of(text: str) -> str:
    """Return an IPv4 address, or the network of 64 bits of an IPv6 address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "?"
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def check_host(path: str, headers: RawHeaders, settings: Settings) -> None:
    """Refuse a request for another name: a page elsewhere may have its own name lead to this machine."""
    if not settings.hosts or path in _PROBES:
        return
    if _name(headers.get(b"host", b"")) not in settings.hosts:
        words = "The service does not answer to this name. Start it with --allow-host and the name, if it should."
        raise Refused(421, "other_host", words, {"Connection": "close"})


@lru_cache(1024)
def _name(host: bytes) -> str:
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


def check_site(method: str, headers: RawHeaders, settings: Settings) -> None:
    """Refuse what a page of another site sends, unless it was allowed to; browsers say where a page is from."""
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if method in _UNCHANGING or site == b"same-origin":
        return
    if origin is None and site in (None, b"none"):
        return  # no browser sends this without saying so
    text = "" if origin is None else origin.decode("latin-1")
    allowed = text in settings.origins or (origin is not None and "*" in settings.origins)
    if not allowed and not _same(text, headers.get(b"host", b"").decode("latin-1")):
        words = "Pages of other sites may not send anything here. --allow-origin names the sites that may."
        raise Refused(403, "cross_site", words, {"Connection": "close"})


def _same(origin: str, host: str) -> bool:
    return origin.removeprefix("https://").removeprefix("http://") == host != origin
