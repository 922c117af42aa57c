"""The trusted base is one list, of limited length: random bits are drawn, and permits are made, in no other module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import dpsketch

ROOT = Path(dpsketch.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "trusted-base.md"
DRAWS = {"sample", "random_words", "random_below", "random_bytes"}
# The list may grow by a repair, or by the laws of a new kind (tables: 870, and 280 for records in order, which one
# machine reads in a third of the time of relational steps): state the reason where this number rises.
MOST_LINES = 7_180
# Random without being noise: nothing that is drawn here is published, or it promises nothing.
CHOICES = {
    "sketches/density/sketch.py": "which row a record goes to, where it goes to one",
    "plan/group_by.py": "a rehearsal on made-up groups, of which nothing is released",
    "sketches/countsketch/decoding.py": "a rehearsal on a public guess, of which nothing is released",
    "sketches/moment/as_published.py": "the published mechanism's coins, which promise nothing",
}
# Modules of trusted folders that only see what is public, or search for what a law then pays for.
PUBLIC = {
    "accounting/guesses.py": "guesses roots, which accounting/gaussian.py checks",
    "laws/calibration.py": "searches for the least noise",
    "laws/chosen.py": "computes a bound from two published tables",
    "laws/scales.py": "estimates the scale of sums that carry their floor",
}
# They make a release without a permit, of what was published before or of what promises nothing.
COMBINES = {
    "sketches/continual/windows.py": "a window of a stream",
    "sketches/countsketch/sketch.py": "a sum of the parties' shares",
    "sketches/countsketch/private.py": "a sum of releases, and a window",
    "sketches/distinct/bitmap.py": "two bitmaps merged",
    "sketches/histogram/window.py": "a window of a stream",
    "sketches/moment/as_published.py": "the published mechanism, which promises nothing",
    "sketches/table/private.py": "a window of a stream",
}
# Local protocols draw on each person's device, and seeds of hash functions are no noise.
ELSEWHERE = ("local/", "seeds.py")


def trusted() -> set[str]:
    """Return the modules that the page lists, below the package."""
    found: set[str] = set()
    for row in (line for line in PAGE.read_text().splitlines() if line.startswith("| `")):
        folder = ""
        for name in re.findall(r"`([\w/]+\.py)`", row.split(" | ")[0]):
            folder = name.rpartition("/")[0] + "/" if "/" in name else folder
            path = name if "/" in name or (ROOT / name).exists() else folder + name
            assert (ROOT / path).exists(), path
            found.add(path)
    return found


def drawing(code: str) -> bool:
    calls = [node.func for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return bool(names & DRAWS)


def lines_of_code(path: Path) -> int:
    """Return the number of lines that hold code: no blanks, comments or docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    within = {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return sum(number not in within and line.strip()[:1] not in ("", "#") for number, line in lines)


def modules_with(pattern: str) -> set[str]:
    """Return the modules in which a pattern occurs, below the package."""
    paths = [path for path in ROOT.rglob("*.py") if re.search(pattern, path.read_text("utf-8"), re.MULTILINE)]
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_the_core_and_all_laws_are_listed() -> None:
    modules = {name for name in modules_with("") if name.partition("/")[0] in ("accounting", "core", "laws")}
    assert modules - trusted() == {"core/__init__.py", *PUBLIC}


def test_laws_and_designs_are_classes_of_the_trusted_base() -> None:
    bases = "Law|OneTable|Additive|EntriesLaw|CountingLaw|Published|Table|Move|Design|Filter|Banded"
    of_a_sketch = {"sketches/table/daily.py"}  # its Table is the sketch
    assert modules_with(rf"^class \w+\(({bases})\b") - of_a_sketch <= trusted()


def test_the_trusted_base_does_not_grow_unnoticed() -> None:
    lines = sum(lines_of_code(ROOT / name) for name in trusted())
    assert 0.98 * MOST_LINES < lines <= MOST_LINES
    assert f"**{MOST_LINES:,} lines of code**" in PAGE.read_text()


def test_random_bits_are_drawn_in_the_trusted_base_only() -> None:
    assert drawing("def release(self):\n    return self.table + self.noise.sample(9)")
    found = {name for name in modules_with("") - trusted() if drawing((ROOT / name).read_text(encoding="utf-8"))}
    assert {name for name in found if not name.startswith(ELSEWHERE)} == set(CHOICES)


def test_permits_and_handles_are_made_in_one_module() -> None:
    assert modules_with(r"\b(Permit|Handle)(\._of\(|\.__new__\(|\(\))") <= {"core/permit.py"}


def test_releases_without_a_permit_combine_what_was_published() -> None:
    assert modules_with(r"\bDrawn(\.of)?\(") - trusted() == set(COMBINES)
