"""Make a release: ``python -m distribution [--trial]`` leaves the archives and the bill of materials in ``dist/``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from distribution.materials import bill
from distribution.versions import NotReady, agreed_version

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Check, build, try, and write."""
    trial = "--trial" in sys.argv[1:]
    try:
        version = agreed_version(ROOT, trial=trial)
        if not trial:
            refuse_changes(ROOT)
    except NotReady as why:
        sys.exit(f"release: {why}")
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    with tempfile.TemporaryDirectory() as name:
        site = try_wheel(wheel, Path(name))
        path = folder / f"dpsketch-{version}.cdx.json"
        path.write_text(json.dumps(bill(site, "dpsketch"), indent=1) + "\n", encoding="utf-8")
    print(f"Made in {folder}: {', '.join(sorted(file.name for file in folder.iterdir()))}.")
    if not trial:
        print(f"Publish with: git tag v{version} && twine upload dist/dpsketch-{version}*.whl dist/*.tar.gz")


def refuse_changes(root: Path) -> None:
    """Refuse a tree that is not what its commit says."""
    said = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    if said.stdout.strip():
        raise NotReady("the tree has changes that are not committed: commit or remove them.")


def try_wheel(wheel: Path, folder: Path) -> Path:
    """Install a wheel in an empty environment, run its demo in an empty folder, and return where it was installed."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([sys.executable, "-m", "venv", folder / "own"], check=True, env=environment)
    python, work = folder / "own" / "bin" / "python", folder / "work"
    work.mkdir()
    environment |= {"XDG_DATA_HOME": str(work / "data"), "DPSKETCH_LEDGER": ""}

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    origin = Path(run(python, "-c", "import dpsketch; print(dpsketch.__file__)").strip())
    if not origin.is_relative_to(folder):
        raise NotReady(
            f"the trial imported {origin}, which is not the wheel's: run it where no checkout is on the path."
        )
    print(run(python.with_name("dpsketch"), "demo", "-o", "demo-output"))
    if not any((work / "demo-output").iterdir()):
        raise NotReady("the demo of the installed wheel wrote nothing.")
    return origin.parent.parent


if __name__ == "__main__":
    main()
