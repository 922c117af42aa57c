"""The workflow file runs what must pass before a change lands, on the oldest Python that is promised."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
JOB: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8"))[
    "jobs"
]["check"]
COMMANDS = [step["run"] for step in JOB["steps"] if "run" in step]


def test_it_makes_what_the_check_before_a_merge_makes() -> None:
    asked = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line[:5] == "make "]
    assert asked
    assert [command for command in COMMANDS if command.startswith("make ")] == asked
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{command.removeprefix('make ')}:" in targets for command in asked)


def test_it_begins_with_the_oldest_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert JOB["strategy"]["matrix"]["python"][0] == oldest
