"""Collections that ask for tickets: one report for each subject and period.

What the store keeps of a ticket that was used is a mark: a keyed digest of its subject and the period. The mark is
written in the transaction of the report, so that a report that was acknowledged has used its ticket up, and a ticket
whose report was not stored is as good as before.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, get_args

from dpsketch.local import tickets
from dpsketch.server.refusals import Refused
from dpsketch.server.tables import Ticketing

__all__ = ["PERIODS", "Period", "check_ticket", "current_period", "spent_ticket"]

Period = Literal["once", "hour", "day", "week"]
PERIODS: tuple[Period, ...] = get_args(Period)
"""How often a subject may report; periods begin at midnight UTC, or at the hour, and a week on Thursday as 1970 did."""

_SECONDS = {"hour": 3600, "day": 86_400, "week": 604_800}


def current_period(ticketing: Ticketing, now: float) -> int:
    """Return the number of the period that a moment is in."""
    return 0 if ticketing.period == "once" else int(now // _SECONDS[ticketing.period])


def check_ticket(ticketing: Ticketing, collection: str, ticket: str | None, now: float) -> tuple[int, str]:
    """Return the period and the mark of a good ticket, or refuse."""
    if ticket is None:
        words = f"This collection asks for a ticket with each report ({tickets.HEADER}); its issuer gives them out."
        raise Refused(401, "ticket_needed", words)
    subject = tickets.subject_of(ticketing.key, collection, ticket, now)
    if subject is None:
        words = "The ticket is not of this collection, or has expired. Ask its issuer for another."
        raise Refused(403, "ticket_refused", words)
    period = current_period(ticketing, now)
    said = f"mark {collection} {period} {subject}".encode()
    return period, hmac.new(ticketing.key.encode(), said, hashlib.sha256).hexdigest()[:32]


def spent_ticket(ticketing: Ticketing) -> Refused:
    """Return the refusal of a second report."""
    often = "" if ticketing.period == "once" else f" a {ticketing.period}"
    words = f"This ticket has had its report; the collection takes one{often} from each. Nothing was stored."
    return Refused(409, "ticket_used", words)
