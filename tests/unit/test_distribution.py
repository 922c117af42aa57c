"""A release of the project: versions agree, the bill names what is installed, and make says what a machine lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from distribution.__main__ import try_wheel
from distribution.materials import bill
from distribution.versions import NotReady, agreed_version

ROOT = Path(__file__).parent.parent.parent


def test_the_places_agree_now() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", agreed_version(ROOT, trial=True))


def installed(site: Path, name: str, version: str, *lines: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines])
    )


def test_the_bill_names_what_is_there_and_what_needs_what(tmp_path: Path) -> None:
    installed(tmp_path, "dpsketch", "0.1.0", "License-Expression: Apache-2.0", "Requires-Dist: Some_Thing>=1",
              "Requires-Dist: rest; extra == 'spark'", "Requires-Dist: gone; python_version < '3'")  # fmt: skip
    installed(tmp_path, "some.thing", "2.0", "Classifier: License :: OSI Approved :: MIT License")
    installed(tmp_path, "rest", "3.0")
    installed(tmp_path, "pip", "25.0")
    found = bill(tmp_path, "dpsketch")
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert [one["purl"] for one in found["components"]] == ["pkg:pypi/rest@3.0", "pkg:pypi/some-thing@2.0"]
    assert found["components"][1]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert found["dependencies"][0] == {"ref": "pkg:pypi/dpsketch@0.1.0", "dependsOn": ["pkg:pypi/some-thing@2.0"]}
    assert bill(tmp_path, "dpsketch") == found


def make(tmp_path: Path, **given: object) -> str:
    """What ``make demo`` says on a machine that lacks something; it must end before it installs anything."""
    words = [f"{name}={value}" for name, value in {"VENV": tmp_path / "own", **given}.items()]
    done = subprocess.run(["make", "demo", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "own" / "bin").exists()
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("make: ") and "***" not in line]
    return said


def test_a_machine_without_python_is_told_what_to_install(tmp_path: Path) -> None:
    assert "apt-get install python3 python3-venv" in make(tmp_path, PYTHON="no-such-python")


@pytest.mark.full
def test_a_trial_release_leaves_archives_and_a_bill_and_its_wheel_runs_the_demo(tmp_path: Path) -> None:
    """All of it, from a copy of the tree: the demo runs in an empty environment with no checkout beside it."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "dist", "site", "__pycache__"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "distribution", "--trial"], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.suffixes[-1] for path in (copy / "dist").iterdir())
    assert names == [".gz", ".json", ".whl"]


def test_a_wheel_that_is_not_what_was_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the check: a checkout on the path would answer in the wheel's place."""
    calls: list[tuple[object, ...]] = []

    def run(words: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(tuple(words))
        return subprocess.CompletedProcess(words, 0, stdout=f"{ROOT / 'src' / 'dpsketch' / '__init__.py'}\n")

    monkeypatch.setattr(subprocess, "run", run)
    wheel = tmp_path / "dpsketch-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w"):
        pass
    with pytest.raises(NotReady, match="not the wheel's"):
        try_wheel(wheel, tmp_path)
    assert not any("demo" in words for words in calls)
