"""The contract of names: every public name loads, and loading is lazy."""

from __future__ import annotations

import subprocess
import sys

import dpsketch as dps
from dpsketch import errors


def test_every_public_name_loads() -> None:
    for name in dps.__all__:
        assert getattr(dps, name) is not None
        assert name in dir(dps)


def test_every_error_is_a_public_name() -> None:
    for name in errors.__all__:
        assert getattr(dps, name) is getattr(errors, name)
        assert name in dps.__all__


def test_import_loads_nothing_heavy() -> None:
    heavy = {
        "numpy",
        "numba",
        "pyarrow",
        "scipy",
        "pandas",
        "polars",
        "duckdb",
        "sqlalchemy",
        "matplotlib",
        "dp_accounting",
    }
    code = "import dpsketch, sys; print(*sorted(set(sys.modules)))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not heavy & loaded


def test_help_loads_nothing_heavy() -> None:
    heavy = {"numba", "pyarrow", "scipy", "duckdb", "sqlalchemy", "matplotlib", "dp_accounting"}
    code = (
        "import sys; sys.argv[1:] = ['--help']\nfrom dpsketch.cli import main\ntry:\n    main()\nexcept SystemExit:\n"
    )
    code += "    print('LOADED', *sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Ask a release" in shown
    assert not heavy & set(shown.split("LOADED")[1].split())
