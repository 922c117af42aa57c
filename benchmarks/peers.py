"""Other libraries, run in environments of their own so that their pins do not bind ours.

An environment has a name: ``peers`` for most, and one for each library whose pins bind the others. The interpreter of
``tumult``, say, is ``$DPSKETCH_TUMULT_PYTHON``, by default ``.venv-tumult/bin/python`` at the root of the project,
which ``make bench`` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run_peer(code: str, environment: str = "peers") -> Any:
    """Run Python code in an environment of the peers and return the JSON document on the last line that it prints."""
    stated = os.environ.get(f"DPSKETCH_{environment.upper()}_PYTHON")
    python = stated or str(ROOT / f".venv-{environment}" / "bin" / "python")
    if not Path(python).exists():
        raise SystemExit(f"the interpreter of {environment} is not at {python}: `make bench` makes it.")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the peer's code failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
