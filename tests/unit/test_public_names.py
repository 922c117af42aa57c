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
