"""``python -m tests.verify``: run all long checks on one commit, and write what held into the documentation.

The parts are the full tests, the mutants, the coverage of intervals and the audits. Each part has pieces. The result of
a piece is kept in ``.verify/COMMIT.jsonl`` as soon as it is known, so an interrupted run goes on where it stopped.
``--part NAME`` runs one part. ``--page`` only writes the page.
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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import ROOT, judged

STATE = ROOT / ".verify"
DATA = ROOT / "docs" / "explanation" / "verified.json"
PAGE = DATA.with_suffix(".md")
# Seconds of a piece that was never run.
GUESS = 20.0
PROCESSES = 2
BEGIN, END = "<!-- table: written by make verify -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True)
class Outcome:
    """What became of a piece: whether it held, what was seen, and how long it took."""

    part: str
    piece: str
    held: bool
    seen: str
    seconds: float


Keep = Callable[[str, bool, str, float], None]


def _called(command: list[str], **more: str) -> tuple[bool, str, float]:
    """Run a command; return whether it succeeded, its last line, and its seconds."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    # pytest's 5: a file whose tests are all left out by its markers.
    return done.returncode in (0, 5), lines[-1] if lines else "", time.monotonic() - began


def _commands(command: Callable[[str], list[str]], pieces: Iterable[str], keep: Keep, **more: str) -> None:
    """Run a command for each piece, several at a time."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda piece: keep(piece, *_called(command(piece), **more)), pieces))


def _test_files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def _tests(pieces: list[str], keep: Keep) -> None:
    def command(piece: str) -> list[str]:
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", piece]

    _commands(command, pieces, keep, DPSKETCH_FRESH_NOISE="1")


def _mutants(pieces: list[str], keep: Keep) -> None:
    wanted = set(pieces)
    judged(
        [mutant for mutant in MUTANTS if mutant.name in wanted],
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
    _commands(lambda piece: [sys.executable, "-m", "dpsketch", "audit", piece, "--quiet"], pieces, keep)


@dataclass(frozen=True)
class Part:
    """One of the long checks: its name, its pieces, and how to run some of them."""

    name: str
    pieces: Callable[[], list[str]]
    run: Callable[[list[str], Keep], None]


PARTS = (
    Part("full tests", _test_files, _tests),
    Part("mutants", lambda: [mutant.name for mutant in MUTANTS], _mutants),
    Part("coverage of intervals", _cases, _coverage),
    Part("audits", _mechanisms, _audits),
)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def code() -> dict[str, str]:
    """Return git's digests of the library and of its tests at the current commit."""
    return {folder: _git("rev-parse", f"HEAD:{folder}") for folder in ("src", "tests")}


def kept(path: Path) -> dict[tuple[str, str], Outcome]:
    """Return the outcomes in a file, by part and piece."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = (Outcome(**json.loads(line)) for line in lines)
    return {(each.part, each.piece): each for each in found}


def _expected() -> dict[tuple[str, str], float]:
    """Return the seconds of every piece that any commit ran."""
    paths = sorted(STATE.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return {key: each.seconds for path in paths for key, each in kept(path).items()}


def run(parts: Iterable[Part], path: Path) -> None:
    """Run the pieces that have no outcome yet; say after each how far the run is and how long the rest will take."""
    STATE.mkdir(exist_ok=True)
    known, expected, turn = kept(path), _expected(), threading.Lock()
    missing = {part.name: [p for p in part.pieces() if (part.name, p) not in known] for part in parts}
    left = {(name, piece): expected.get((name, piece), GUESS) for name, found in missing.items() for piece in found}
    total = len(left)
    for part in parts:

        def keep(piece: str, held: bool, seen: str, seconds: float, name: str = part.name) -> None:
            outcome = Outcome(name, piece, held, seen, round(seconds, 1))
            with turn:
                with path.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(outcome)) + "\n")
                left.pop((name, piece), None)
                minutes = sum(left.values()) / PROCESSES / 60
                state = "held" if held else f"FAILED: {seen}"
                where = f"[{total - len(left)}/{total}, {minutes:.0f} min left]"
                print(f"{where} {name}: {piece}: {state}", flush=True)

        part.run(missing[part.name], keep)


def write(path: Path) -> bool:
    """Write what is known of this commit into the data and the page; return whether all of it held."""
    known = kept(path)
    stored = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for part in PARTS:
        pieces = part.pieces()
        found = [known[part.name, piece] for piece in pieces if (part.name, piece) in known]
        if found:
            stored[part.name] = {
                "commit": path.stem,
                "date": datetime.now(UTC).date().isoformat(),
                "code": code(),
                "pieces": len(pieces),
                "run": len(found),
                "failed": sorted(each.piece for each in found if not each.held),
                "minutes": round(sum(each.seconds for each in found) / PROCESSES / 60),
            }
    DATA.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    lines = ["| part | pieces | run | held | commit | date | minutes |", "|---|---|---|---|---|---|---|"]
    for name, row in stored.items():
        held = row["run"] - len(row["failed"])
        cells = [name, row["pieces"], row["run"], held, f"`{row['commit'][:8]}`", row["date"], row["minutes"]]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    failed = [f"- {name}: {piece}" for name, row in stored.items() for piece in row["failed"]]
    lines += ["", "Did not hold:", "", *failed] if failed else []
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")
    return not failed and all(row["run"] == row["pieces"] for row in stored.values())


def main() -> int:
    """Run the parts, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify", description=__doc__)
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="part to run")
    parser.add_argument("--page", action="store_true", help="write the page from what is known")
    given = parser.parse_args()
    if _git("status", "--porcelain", "--untracked-files=no", "src", "tests"):
        parser.error("src and tests must be committed first: the page names the commit.")
    path = STATE / f"{_git('rev-parse', 'HEAD')}.jsonl"
    if not given.page:
        run([part for part in PARTS if not given.part or part.name in given.part], path)
    return int(not write(path))


if __name__ == "__main__":
    sys.exit(main())
