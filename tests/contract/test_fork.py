"""A forked child must not go on with what its parent holds: nothing is spent, drawn or counted twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sensitive import ROWS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

TESTS = Path(__file__).parents[1]
OTHERS = ["client", "a child's own sketch", "permit", "classifier", "stream folder", "stream folder, later"]


@pytest.fixture(scope="module")
def forked() -> dict[str, Any]:
    """What a child was allowed, by the name of what it got from its parent."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, TESTS / "contract" / "forked.py"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [*(row.name for row in ROWS), *OTHERS])
def test_a_child_is_refused_what_its_parent_holds(name: str, forked: dict[str, Any]) -> None:
    """Every public method, before anything is charged or drawn; the parent goes on, as does what the child made."""
    child = dict(forked[name]["child"])
    assert child.pop("its own", "done") == "done"
    assert child
    assert set(child.values()) == {"refused"}, child
    assert forked[name]["parent"] == "done"


def test_a_client_whose_file_counts_for_all_processes_works_in_a_child(forked: dict[str, Any]) -> None:
    found = forked["client with a file"]
    assert found["child"] == {"its own": "done"}
    assert "spent" in found["parent"]
