"""Other libraries, run in an environment of their own so that their pins do not bind ours.

The peers' interpreter is ``$DPSKETCH_PEERS_PYTHON``, by default ``.venv-peers/bin/python`` at the root of the project,
which ``make bench`` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run_peer(code: str) -> Any:
    """Run Python code with the peers' interpreter and return the JSON document on the last line that it prints."""
    python = os.environ.get("DPSKETCH_PEERS_PYTHON") or str(ROOT / ".venv-peers" / "bin" / "python")
    if not Path(python).exists():
        raise SystemExit(f"the peers' interpreter is not at {python}: `make bench` makes it.")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the peer's code failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
