"""Mutants of the service: who may send how much, what is timed, what is kept."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_ATTACKS = "tests/integration/test_server_attacks.py -k"
_LIMITS = "tests/unit/test_server_limits.py -k"
_TICKETS = "tests/integration/test_server_tickets.py -k"
_EXPORTS = "tests/unit/test_server_exports.py -k"
_PRODUCTION = "tests/integration/test_server_production.py -k"

STRANGERS = [
    Mutant(
        "stranger-brings-a-batch",
        "server/service.py",
        "return self._limits.batch if visitor.known else self._limits.public_batch",
        "return self._limits.batch",
        f"{_ATTACKS} carries_one_report",
        "a request without a token carries as many reports as one with a token",
    ),
    Mutant(
        "stranger-without-a-quota",
        "server/service.py",
        'self._quota.take(f"{aggregate.row.id} {visitor.key}", number)',
        "pass",
        f"{_ATTACKS} rate_and_a_quota",
        "an address may send any number of reports a day",
    ),
    Mutant(
        "callers-word-for-an-address",
        "server/clients.py",
        '.rpartition(b",")[2] if header',
        '.partition(b",")[0] if header',
        f"{_ATTACKS} rate_and_a_quota",
        "what a caller writes before the proxy's word is taken for its address",
    ),
    Mutant(
        "other-sites-may-send",
        "server/clients.py",
        'raise Refused(403, "cross_site"',
        'return; raise Refused(403, "cross_site"',
        f"{_ATTACKS} other_sites",
        "a page of another site may send reports",
    ),
    Mutant(
        "body-without-a-timer",
        "server/connections.py",
        "if self._arriving and not self.transport.is_closing():\n            self._wait(_GRACE)",
        "if self._arriving and not self.transport.is_closing():\n            self._stop_waiting()",
        f"{_ATTACKS} sockets_cannot",
        "a connection whose body nobody reads is held for ever",
    ),
    Mutant(
        "impossible-shares-unflagged",
        "server/plausibility.py",
        "outside = (found.value - margin > 1)",
        "outside = (found.value - margin > 100)",
        f"{_ATTACKS} cannot_be",
        "shares above one are shown without a word",
    ),
    Mutant(
        "computing-for-nothing",
        "server/answers.py",
        "self._rate.charge(caller, spent)",
        "self._rate.charge(caller, 0.0)",
        f"{_LIMITS} computing_is_charged",
        "computing costs a caller nothing",
    ),
    Mutant(
        "workers-count-twice",
        "server/commits.py",
        "                self._catch_up()\n            return self._commit_in_turn(group)",
        "                pass\n            return self._commit_in_turn(group)",
        f"{_PRODUCTION} count_every_report_once",
        "a worker does not read what others wrote before it writes",
    ),
    Mutant(
        "workers-each-with-the-whole",
        "server/service.py",
        "own = settings.limits.for_one_of(settings.workers)",
        "own = settings.limits",
        f"{_PRODUCTION} together_let_through",
        "with two workers an address has its quota twice",
    ),
    Mutant(
        "flood-clears-a-quota",
        "server/limits.py",
        "place = min(group, key=self._used.__getitem__)",
        "place = max(group, key=self._used.__getitem__)",
        f"{_LIMITS} flood_of_addresses",
        "whoever has used a quota up is forgotten for passers-by",
    ),
    Mutant(
        "ticket-leaves-no-mark",
        "server/commits.py",
        "if new and mark is not None:",
        "if False and new and mark is not None:",
        f"{_TICKETS} one_report_a_period",
        "a ticket may be used again and again",
    ),
    Mutant(
        "ticket-unsigned",
        "local/tickets.py",
        "if not hmac.compare_digest(mac, _mac(key, said)):",
        "if not mac:",
        f"{_TICKETS} forged_expired",
        "a ticket is good whoever signed it",
    ),
    Mutant(
        "ticket-at-once-twice",
        "server/commits.py",
        "if mark is not None and mark in self._marks:",
        "if False and mark in self._marks:",
        "tests/unit/test_server_parts.py -k at_once_with_one_ticket",
        "reports that come at once with one ticket all count",
    ),
    Mutant(
        "copies-share-room",
        "local/growing.py",
        "return Growing(self.rows())",
        "return self",
        f"{_EXPORTS} own_way",
        "reports that come later are written into what was taken as a snapshot",
    ),
    Mutant(
        "every-export-is-made-anew",
        "server/collection_routes.py",
        "within = SPOOLED_SECONDS if large",
        "within = 0.0 if large",
        f"{_EXPORTS} strangers_share_it",
        "strangers who ask for a large export at once each have it computed",
    ),
    Mutant(
        "a-closed-collections-export-is-old",
        "server/collection_routes.py",
        " and not aggregate.is_closed() else 0.0",
        " else 0.0",
        f"{_EXPORTS} strangers_share_it",
        "the export of a collection that is closed lacks its last reports",
    ),
    Mutant(
        "cells-of-the-last-part",
        "local/hashed.py",
        "sizes += np.bincount(",
        "sizes = np.bincount(",
        f"{_EXPORTS} cells_are",
        "of many reports only the last part is counted",
    ),
    Mutant(
        "joiner-takes-no-turn",
        "server/answers.py",
        "                await asyncio.sleep(0)",
        "                pass",
        f"{_LIMITS} leaves_the_loop",
        "who asks what has just been refused stops the service for ever",
    ),
    Mutant(
        "joiner-refused-for-another",
        "server/answers.py",
        'if refusal.code != "rate_limited":',
        "if True:",
        f"{_LIMITS} joins_a_question",
        "who asks what another asked first is refused for what the other has spent",
    ),
]
