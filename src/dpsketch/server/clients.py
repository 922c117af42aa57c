"""Where a request came from: the address that limits count by, the Host it asks for, the site that sent it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from dpsketch.server.refusals import Refused
from dpsketch.server.settings import Settings

__all__ = ["address_of", "check_host", "check_site"]

_UNCHANGING = ("GET", "HEAD", "OPTIONS")
_PROBES = ("/health", "/ready")  # load balancers ask these by a machine's address


def address_of(scope: Scope, header: str | None) -> str:
    """Return the address that limits count by: an IPv4 address, or an IPv6 network of 64 bits, which one person has.

    A proxy's header is believed where the settings name it. Of a list, the last is what our own proxy added; all before
    it is the caller's word.
    """
    told = "" if header is None else Headers(scope=scope).get(header, "").rpartition(",")[2].strip()
    client = scope.get("client")
    text = told or (client[0] if client else "")
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "?"
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def check_host(scope: Scope, settings: Settings) -> None:
    """Refuse a request for another name: a page elsewhere may have its own name lead to this machine."""
    if not settings.hosts or scope["path"] in _PROBES:
        return
    host = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
    if host not in settings.hosts:
        words = "The service does not answer to this name. Start it with --allow-host and the name, if it should."
        raise Refused(421, "other_host", words, {"Connection": "close"})


def check_site(scope: Scope, settings: Settings) -> None:
    """Refuse what a page of another site sends, unless it was allowed to; browsers say where a page is from."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if scope["method"] in _UNCHANGING or headers.get("sec-fetch-site") == "same-origin":
        return
    if origin is None and headers.get("sec-fetch-site") in (None, "none"):
        return  # no browser sends this without saying so
    allowed = origin is not None and (origin in settings.origins or "*" in settings.origins)
    if not allowed and not _same(origin, headers.get("host", "")):
        words = "Pages of other sites may not send anything here. --allow-origin names the sites that may."
        raise Refused(403, "cross_site", words, {"Connection": "close"})


def _same(origin: str | None, host: str) -> bool:
    return origin is not None and origin.startswith(("http://", "https://")) and urlsplit(origin).netloc == host
