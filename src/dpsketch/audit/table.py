"""The table of everything that is audited; run audits one after the other, and join what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsketch import plots
from dpsketch.audit.findings import AuditRow, Finding
from dpsketch.audit.grid import GRID
from dpsketch.audit.grouped import TABLES
from dpsketch.audit.laws import FLIPS, MOMENTS, QUANTILES
from dpsketch.audit.names import NAMED, ROUNDS
from dpsketch.audit.sampled import PUBLISHED, REPORTS, SHIPPED
from dpsketch.errors import InvalidInput
from dpsketch.numbers import probability, whole_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CONFIDENCE", "ROWS", "TRIALS", "Report", "audit_mechanisms", "known_mechanisms"]

# Kinds by unit, relation and pair of neighbours, where the law of what is drawn is known; several findings each.
ROWS: dict[str, AuditRow] = {**GRID, **FLIPS, **NAMED, **ROUNDS, **QUANTILES, **MOMENTS, **TABLES, **REPORTS}

TRIALS = 4000
# One false alarm in a million audits: in 25,000 runs over all mechanisms.
CONFIDENCE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Report:
    """What the audits found, in the order asked."""

    findings: tuple[Finding, ...]
    confidence: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        """What is shipped as private and was found violated."""
        return tuple(found for found in self.findings if found.shipped and found.verdict == "violated")

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {"mechanisms": [found.to_json() for found in self.findings], "confidence": self.confidence}

    def plot(self) -> Figure:
        """Draw the claimed ε and the audited lower bound of each mechanism."""
        return plots.audits(
            [found.name for found in self.findings],
            [found.claim.epsilon for found in self.findings],
            [found.audited_epsilon for found in self.findings],
            f"Empirical lower bounds on ε, each wrong with probability at most {1 - self.confidence:.0e}",
        )


def known_mechanisms() -> list[str]:
    """Return the names of all mechanisms that can be audited, shipped ones first."""
    return [*SHIPPED, *PUBLISHED, *ROWS]


def audit_mechanisms(
    names: Sequence[str] = (),
    *,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Audit mechanisms through their public interface.

    Parameters
    ----------
    names : sequence of str, optional
        Which; all by default. The beginning of a name stands for all mechanisms that begin so: ``counts``, ``local``.
    trials : int
        Runs of each mechanism on each of its two datasets.
    confidence : float
        Each bound is above the true ε with probability at most ``1 - confidence``.
    progress : callable, optional
        Told the mechanism that comes next, how many are done, and how many there are.

    Notes
    -----
    A lower bound above the claimed ε refutes the claim. One below it proves nothing by itself; what makes it worth
    something is that mutants of the same mechanisms, with half the noise, are caught by the same audit.

    Examples
    --------
    >>> report = audit_mechanisms(["local-subset-direct"], trials=400)
    >>> [(found.name, found.verdict) for found in report.findings]
    [('local-subset-direct', 'holds')]
    """
    trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
    if trials < 100:
        raise InvalidInput(f"an audit needs at least 100 trials, not {trials}; below a thousand it sees little.")
    chosen = _chosen(names)
    findings: list[Finding] = []
    for done, name in enumerate(chosen):
        if progress is not None:
            progress(name, done, len(chosen))
        if name in ROWS:
            findings += ROWS[name].audit(trials, confidence)
        else:
            make = SHIPPED[name] if name in SHIPPED else PUBLISHED[name]
            findings.append(make().audit(trials, confidence))
    return Report(tuple(findings), confidence)


def _chosen(names: Sequence[str]) -> list[str]:
    known = known_mechanisms()
    if not names:
        return known
    chosen: list[str] = []
    for name in names:
        meant = [name] if name in known else [one for one in known if one.startswith(f"{name}-")]
        if not meant:
            raise InvalidInput(f"there is no mechanism called {name!r}; known are: {', '.join(known)}.")
        chosen += [one for one in meant if one not in chosen]
    return chosen
