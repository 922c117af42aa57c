"""The papers, where they lie, and how one is run."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dpsketch.errors import InvalidInput
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.reproduce.expected import Expected, Reproduced
from dpsketch.reproduce.run import Run

__all__ = ["PAPERS", "Reproduction", "find_papers", "reproduce"]

PAPERS = ("countsketch", "alp", "moments", "privsketch", "race")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came out of one paper's run.

    Attributes
    ----------
    paper, title, headline : str
        The folder's name, the paper, and its main claim.
    introduction, body : str
        The folder's README and what the script reports, in Markdown.
    outcomes : dict
        The numbers, by name.
    headline_outcome : Outcome or None
        The one that stands for the paper's main claim; None where the run had to leave it out.
    failures : list of str
        Numbers outside their limits, and expected numbers that were not measured.
    left_out : list of str
        What could not be done, and why.
    quick : bool
        The form of the run.
    seconds : float
        How long it took.
    """

    paper: str
    title: str
    headline: str
    introduction: str
    body: str
    outcomes: dict[str, Reproduced]
    headline_outcome: Reproduced | None
    failures: list[str]
    left_out: list[str]
    quick: bool
    seconds: float


def find_papers() -> Path:
    """Return the folder of the papers: beside the package where it is installed, else at the root of the project."""
    inside = Path(__file__).parents[1] / "papers"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "papers"


def reproduce(
    paper: str,
    folder: Path,
    *,
    quick: bool,
    papers: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Reproduction:
    """Run a paper's script; its figures go to ``folder``.

    The noise is seeded by the paper's name, so that a report can be made again to the last digit; nothing in it is
    about anyone, as all data is public.

    Parameters
    ----------
    paper : str
        One of :data:`PAPERS`.
    folder : Path
        Where figures are written; it is made.
    quick : bool
        The short form, with wider limits where ``expected.json`` says so.
    papers : Path, optional
        The folder of the papers, if not the one that comes with the package.
    progress : callable
        Told what is being done.
    """
    home = (find_papers() if papers is None else papers) / paper
    if paper not in PAPERS or not home.is_dir():
        raise InvalidInput(f"there is no paper {paper!r} here; those known are {', '.join(PAPERS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    expected = Expected.read(home / "expected.json", quick=quick)
    run = Run(expected, folder, quick=quick, progress=progress)
    start = time.perf_counter()
    with seeded_noise_for_tests_only(int.from_bytes(paper.encode()[:7], "big")):
        _script(home).reproduce(run)
    complaints = [line for outcome in run.outcomes.values() for line in outcome.complaints]
    return Reproduction(
        paper=paper,
        title=expected.title,
        headline=expected.headline,
        introduction=(home / "README.md").read_text(encoding="utf-8").strip(),
        body=run.body,
        outcomes=run.outcomes,
        headline_outcome=run.outcomes.get(expected.headline_number),
        failures=complaints + [f"{name}: not measured" for name in run.missing()],
        left_out=run.left_out,
        quick=quick,
        seconds=time.perf_counter() - start,
    )


def _script(home: Path) -> ModuleType:
    """Import ``reproduce.py`` of a paper's folder as part of a package, so that it can import its neighbours."""
    name = f"dpsketch_paper_{home.name}"
    for loaded in [module for module in sys.modules if module.startswith(f"{name}.")]:
        del sys.modules[loaded]  # of another folder, perhaps
    package = ModuleType(name)
    package.__path__ = [str(home)]
    sys.modules[name] = package
    return importlib.import_module(f"{name}.reproduce")
