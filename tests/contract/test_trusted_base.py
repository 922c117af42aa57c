"""The trusted base is one list: random bits are drawn, and permits are made, in no other module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import dpsketch

ROOT = Path(dpsketch.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "trusted-base.md"
DRAWS = {"sample", "random_words", "random_below", "random_bytes"}
# Random without being noise: nothing that is drawn here is published, or it promises nothing.
CHOICES = {
    "sketches/histogram/content.py": "which of a user's keys count, where there are too many",
    "sketches/histogram/keytable.py": "the secret of a hash",
    "sketches/continual/days.py": "the secret of the hash that tells users apart",
    "sketches/density/sketch.py": "which row a record goes to, where it goes to one",
    "sketches/countsketch/prediction.py": "a rehearsal on a public guess, of which nothing is released",
    "sketches/moment/as_published.py": "the published mechanism's coins, which promise nothing",
}


def trusted() -> set[str]:
    """Return the modules that the page lists, below the package."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    found: set[str] = set()
    for row in rows:
        folder = ""
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row.split(" | ")[0]):
            folder = name.rpartition("/")[0] + "/" if "/" in name else folder
            path = name if "/" in name or (ROOT / name).exists() else folder + name
            assert (ROOT / path).exists(), path
            found |= (
                {each.relative_to(ROOT).as_posix() for each in (ROOT / path).rglob("*.py")}
                if path.endswith("/")
                else {path}
            )
    return found


def drawing(code: str) -> bool:
    calls = [node.func for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return bool(names & DRAWS)


def test_random_bits_are_drawn_in_the_trusted_base_only() -> None:
    listed = trusted()
    assert {"core/permit.py", "sketches/sparse/alp.py", "accounting/composition.py"} <= listed
    found = {
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if drawing(path.read_text(encoding="utf-8"))
    }
    inside = {name for name in found if name.startswith(("sketches/", "core/"))}
    assert inside - listed == set(CHOICES) & inside
    assert set(CHOICES) <= inside | {"sketches/continual/days.py"}


def test_the_lint_sees_a_draw() -> None:
    assert drawing("def release(self):\n    return self.table + self.noise.sample(9)")
    assert drawing("words = random_words(3)")
    assert not drawing("def release(self):\n    return self.table")


def test_permits_and_handles_are_made_in_one_module() -> None:
    for path in ROOT.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        if path.name != "permit.py" or path.parent.name != "core":
            assert not re.search(r"\b(Permit|Handle)(\._of\(|\.__new__\(|\(\))", code), path
