"""``python -m tests.verify``: run all long checks on one commit, and write what held into the documentation.

The parts are the audits, the coverage of intervals, the mutants, the full tests, and the quick tests in random order
and on a busy machine. Each part has pieces. The result of a piece is kept in the folder ``.verify`` as soon as it is
known, under a digest of the code that the part stands on. So an interrupted run continues where it stopped, and a
commit that changes only the documentation invalidates nothing.
``--part NAME`` runs one part.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tests.mutants.__main__ import known
from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import ROOT, judged

STATE = ROOT / ".verify"
DATA = ROOT / "docs" / "explanation" / "verified.json"
# Seconds of a piece that was never run.
GUESS = 20.0
PROCESSES = 2


@dataclass(frozen=True)
class Outcome:
    """What became of a piece: whether it held, what was seen, and how long it took."""

    piece: str
    held: bool
    seen: str
    seconds: float


Keep = Callable[[str, bool, str, float], None]


def _called(command: list[str], **more: str) -> tuple[bool, str, float]:
    """Run a command; return whether it succeeded, the tests that failed or its last line, and its seconds."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return done.returncode == 0, " ".join(failed) or (lines[-1] if lines else ""), time.monotonic() - began


_PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal"]


def _folders() -> list[str]:
    tests = sorted({path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")})
    return [*tests, "src/dpsketch"]


def _tests(pieces: list[str], keep: Keep) -> None:
    """Run all tests of some folders, with noise and examples that are new in every run."""
    for piece in pieces:
        keep(piece, *_called([*_PYTEST, "-p", "no:randomly", piece], DPSKETCH_FRESH_NOISE="1"))


CIRCUMSTANCES = ("random order", "beside five busy processes")


def _circumstances(pieces: list[str], keep: Keep) -> None:
    """Run the quick tests in random order, then once more while others compute: with the workers a load of eight."""
    for piece in pieces:
        busy = 5 if piece == CIRCUMSTANCES[1] else 0
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            keep(piece, *_called([*_PYTEST, "-m", "not full"]))
        finally:
            for other in others:
                other.kill()
                other.wait()


def _mutants(pieces: list[str], keep: Keep) -> None:
    wanted = set(pieces)
    judged(
        [mutant for mutant in MUTANTS if mutant.name in wanted],
        known,
        processes=PROCESSES,
        tell=lambda verdict: keep(
            verdict.mutant.name, verdict.outcome == "killed", f"{verdict.outcome} {verdict.by}"[:200], verdict.seconds
        ),
    )


def _cases() -> list[str]:
    from benchmarks.coverage.cases import all_cases

    return [case.name for _, _, case in all_cases()]


def _coverage(pieces: list[str], keep: Keep) -> None:
    def command(piece: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.coverage", "--processes", "1", "--only", f"^{re.escape(piece)}$"]

    # The command also fails for a case that it did not run, so the row of this one is read from its result.
    from benchmarks.coverage import stored
    from benchmarks.coverage.cases import all_cases

    cases = {case.name: case for _, _, case in all_cases()}

    def measure(piece: str) -> None:
        _, _, seconds = _called(command(piece))
        found = stored.result_of(cases[piece])
        held = found is not None and found.current and not any(row.short for row in found.rows)
        keep(piece, held, "" if held else "missing or below its limit", seconds)

    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(measure, pieces))


def _mechanisms() -> list[str]:
    from dpsketch.audit import known_mechanisms

    return list(known_mechanisms())


def _audits(pieces: list[str], keep: Keep) -> None:
    """Attack each mechanism."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        attack = [sys.executable, "-m", "dpsketch", "audit", "--quiet"]
        list(pool.map(lambda piece: keep(piece, *_called([*attack, piece])), pieces))


@dataclass(frozen=True)
class Part:
    """One of the long checks: its name, the folders it stands on, its pieces, and how to run some of them."""

    name: str
    folders: tuple[str, ...]
    pieces: Callable[[], list[str]]
    run: Callable[[list[str], Keep], None]

    def code(self) -> dict[str, str]:
        """Return git's digests of the folders at the current commit."""
        return {folder: _git("rev-parse", f"HEAD:{folder}") for folder in self.folders}

    def state(self) -> Path:
        """Return the file of the outcomes on this code."""
        digest = sha256(json.dumps(self.code()).encode()).hexdigest()[:12]
        return STATE / f"{self.name.replace(' ', '-')}-{digest}.jsonl"

    def known(self) -> dict[str, Outcome]:
        """Return the outcomes on this code, by piece."""
        return outcomes(self.state())


PARTS = (
    Part("audits", ("src",), _mechanisms, _audits),
    Part("coverage of intervals", ("src", "benchmarks/coverage"), _cases, _coverage),
    Part("mutants", ("src", "tests"), lambda: [mutant.name for mutant in MUTANTS], _mutants),
    Part("full tests", ("src", "tests"), _folders, _tests),
    Part("quick tests", ("src", "tests"), lambda: list(CIRCUMSTANCES), _circumstances),
)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def outcomes(path: Path) -> dict[str, Outcome]:
    """Return the outcomes in a file, by piece."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = (Outcome(**json.loads(line)) for line in lines)
    return {each.piece: each for each in found}


def _expected(part: Part) -> dict[str, float]:
    """Return the seconds of every piece that was run on any code."""
    paths = sorted(STATE.glob(f"{part.name.replace(' ', '-')}-*.jsonl"), key=lambda path: path.stat().st_mtime)
    return {piece: each.seconds for path in paths for piece, each in outcomes(path).items()}


def run(parts: Sequence[Part]) -> None:
    """Run the pieces that have no outcome yet; print after each how far the run is and how long the rest will take."""
    STATE.mkdir(exist_ok=True)
    missing, left = {}, {}
    for part in parts:
        expected, known = _expected(part), part.known()
        missing[part.name] = [piece for piece in part.pieces() if piece not in known]
        left.update({(part.name, piece): expected.get(piece, GUESS) for piece in missing[part.name]})
    total, turn = len(left), threading.Lock()
    for part in parts:

        def keep(piece: str, held: bool, seen: str, seconds: float, part: Part = part) -> None:
            with turn:
                with part.state().open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(Outcome(piece, held, seen, round(seconds, 1)))) + "\n")
                left.pop((part.name, piece), None)
                minutes = sum(left.values()) / PROCESSES / 60
                state = "held" if held else f"FAILED: {seen}"
                where = f"[{total - len(left)}/{total}, {minutes:.0f} min left]"
                print(f"{where} {part.name}: {piece}: {state}", flush=True)

        part.run(missing[part.name], keep)


def write() -> bool:
    """Write what is known of this code into the data of the page; return whether all parts ran whole and held."""
    rows = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for part in PARTS:
        pieces, known = part.pieces(), part.known()
        found = [known[piece] for piece in pieces if piece in known]
        if found:
            rows[part.name] = {
                "commit": _git("rev-parse", "--short=8", "HEAD"),
                "date": datetime.now(UTC).date().isoformat(),
                "code": part.code(),
                "pieces": len(pieces),
                "run": len(found),
                "failed": sorted(each.piece for each in found if not each.held),
                "minutes": round(sum(each.seconds for each in found) / PROCESSES / 60),
            }
    DATA.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return len(rows) == len(PARTS) and all(row["run"] == row["pieces"] and not row["failed"] for row in rows.values())


def main() -> int:
    """Run the parts, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify", description=__doc__)
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="part to run")
    given = parser.parse_args()
    parts = [part for part in PARTS if not given.part or part.name in given.part]
    if _git("status", "--porcelain", "--untracked-files=no", *{folder for part in parts for folder in part.folders}):
        parser.error("commit the code first: the page names a commit.")
    run(parts)
    return int(not write())


if __name__ == "__main__":
    sys.exit(main())
