"""The mutants: deliberate faults of the library, written in the text files beside this module.

A file begins with its subject. Each paragraph after it is a mutant: its name and the place that it changes, what a user
loses by it, the code that is replaced, and the code that replaces it (none, where it is deleted)::

    multiples-counted-twice in Multiples._spread
    each record counts twice, and the noise is for once
    - amounts = entries.weights
    + amounts = 2 * entries.weights
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.place import Match, matched

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One way to break the library.

    Attributes
    ----------
    name : str
        Its name.
    where : str
        The function, class or constant that it changes, by its qualified name (see :mod:`tests.mutants.place`).
    breaks : str
        What it breaks, in words.
    old, new : str
        The code that is replaced, which must stand there once, and what replaces it.
    """

    name: str
    where: str
    breaks: str
    old: str
    new: str

    def found(self) -> Match | None:
        """Return where the old code stands; None if it does not stand in exactly one place."""
        return matched(self.where, self.old) if self.old != self.new else None


def parsed(text: str) -> list[Mutant]:
    """Return the mutants of a file's text."""
    _, *paragraphs = text.strip().split("\n\n")
    mutants = []
    for paragraph in paragraphs:
        head, breaks, *code = paragraph.split("\n")
        name, _, where = head.partition(" in ")
        old = [line[2:] for line in code if line[:1] == "-"]
        new = [line[2:] for line in code if line[:1] == "+"]
        if not where or not old or len(old) + len(new) < len(code):
            raise ValueError(f"not a mutant: {head}")
        mutants.append(Mutant(name, where, breaks, "\n".join(old), "\n".join(new)))
    return mutants


MUTANTS = [mutant for path in sorted(FOLDER.glob("*.txt")) for mutant in parsed(path.read_text(encoding="utf-8"))]
