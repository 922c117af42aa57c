"""Tickets: who may report to a collection that asks for them, and how often.

A collection may ask for a ticket with every report. Whoever knows people (a shop with accounts, an app's backend)
shares a key with the service and issues tickets; the service takes one report for each subject and period. A subject
is a name of the issuer's own choice, best a random one for this collection: an enrolled device has one for years.

A ticket is text, so that any language makes it: ``dpt1.COLLECTION.SUBJECT.EXPIRES.MAC``. EXPIRES is in seconds since
1970; MAC is the HMAC-SHA256 of all before it, without the last dot, under the UTF-8 bytes of the key, in base64 for
addresses (RFC 4648 §5) without padding.

    ticket = tickets.issue(key, collection, subject="3f6c2a18b7d0e549", expires=time.time() + 86_400)
    headers = {tickets.HEADER: ticket}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import re
import secrets
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number

__all__ = ["HEADER", "issue", "new_key", "new_subject", "subject_of"]

HEADER = "Dpsketch-Ticket"
"""The header of a request that carries a ticket."""

_VERSION = "dpt1"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EXPIRES = re.compile(r"[0-9]{1,12}")


def new_key() -> str:
    """Return a fresh key: 256 random bits."""
    return "dpk_" + secrets.token_urlsafe(32)


def new_subject() -> str:
    """Return a fresh name for whoever is to have a ticket: 128 random bits, which say nothing about them."""
    return secrets.token_hex(16)


def issue(key: str, collection: str, *, subject: str, expires: float) -> str:
    """Make a ticket.

    Parameters
    ----------
    key : str
        The collection's key, as the service showed it when the collection was made.
    collection : str
        The collection's id.
    subject : str
        Who it is for: 1 to 64 letters, digits, ``_`` or ``-``. One report is taken for each subject and period.
    expires : float
        Until when it is good, in seconds since 1970.

    Privacy
    -------
    The service sees the subject beside the report. Take a name that is used nowhere else (:func:`new_subject`), and
    nothing that tells a person: a report is private by its own noise, who sent it is not.
    """
    for name, value in (("collection", collection), ("subject", subject)):
        if not isinstance(value, str) or not _PLAIN.fullmatch(value):
            raise InvalidInput(f"{name} is 1 to 64 letters, digits, '_' or '-'.")
    if not isinstance(key, str) or not key:
        raise InvalidInput("key is the text that the service showed when the collection was made.")
    ends = real_number("expires", expires)
    if not 0 <= ends < 1e12:
        raise InvalidInput("expires is a time in seconds since 1970.")
    said = f"{_VERSION}.{collection}.{subject}.{math.ceil(ends)}"
    return f"{said}.{_mac(key, said)}"


def subject_of(key: str, collection: str, ticket: Any, now: float) -> str | None:
    """Return whom a ticket is for; None where it is forged, for another collection, or has expired."""
    if not isinstance(ticket, str) or not ticket.isascii():
        return None
    said, _, mac = ticket.rpartition(".")
    # Compared before anything is read: what was not signed is not looked at.
    if not hmac.compare_digest(mac, _mac(key, said)):
        return None
    parts = said.split(".")
    if len(parts) != 4 or parts[:2] != [_VERSION, collection]:
        return None
    subject, expires = parts[2:]
    good = _PLAIN.fullmatch(subject) and _EXPIRES.fullmatch(expires) and now < int(expires)
    return subject if good else None


def _mac(key: str, said: str) -> str:
    digest = hmac.new(key.encode(), said.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
