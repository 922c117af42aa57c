"""The contract of names: every public name loads, and loading is lazy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dpsketch as dps
from dpsketch import errors


def test_every_public_name_loads() -> None:
    for name in dps.__all__:
        assert getattr(dps, name) is not None
        assert name in dir(dps)

    for name in errors.__all__:
        assert getattr(dps, name) is getattr(errors, name)
        assert name in dps.__all__


def test_import_and_help_load_nothing_heavy() -> None:
    heavy = {"numba", "pyarrow", "scipy", "pandas", "polars", "duckdb", "matplotlib", "dp_accounting"}
    code = "import dpsketch, sys; print('LOADED', *sys.modules, 'LOADED')\nsys.argv[1:] = ['--help']\n"
    code += "from dpsketch.cli import main\ntry:\n    main()\nexcept SystemExit:\n    print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    _, imported, shown, helped = done.stdout.split("LOADED")
    assert not (heavy | {"numpy"}) & set(imported.split())
    assert "Ask a release" in shown
    assert not heavy & set(helped.split())


def test_a_run_loads_no_pandas(tmp_path: Path) -> None:
    """It takes a third of a second, and Arrow loads it where a NumPy array or a Python number becomes a column."""
    (tmp_path / "visits.csv").write_text("url\n/\n/a\n", encoding="utf-8")
    code = "import sys\nfrom dpsketch.cli import main\ntry:\n    main()\nexcept SystemExit:\n    print(*sys.modules)"
    words = ["run", "counts", "visits.csv", "--key", "url", "--epsilon", "1", "--delta", "1e-6"]
    given = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "DPSKETCH_LEDGER": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "-o", "visits.dps"],
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "visits.dps").exists()
    assert "pyarrow" in done.stdout.split()  # the names are those of the modules
    assert "pandas" not in done.stdout.split()
