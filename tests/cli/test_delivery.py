"""From a paid release to its file: what a crash, a full disk, a closed pipe or a second command leaves behind.

Every interruption is of a real process. A sketch that may be released once is never there together with its release,
and a payment is either used for one draw that someone may have seen, or can be used again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.ledger import Charge
from ledgers import begun

INTERRUPTED = Path(__file__).with_name("interrupted.py")
PURE = ("--epsilon", "1", "--delta", "0")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


class Runner:
    """The script that runs each command in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, INTERRUPTED, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, **command: Any) -> SimpleNamespace:
        print(json.dumps(command), file=self.process.stdin, flush=True)
        return SimpleNamespace(**json.loads(self.process.stdout.readline()))  # type: ignore[union-attr]


class Place:
    """A folder with a source, sketches and a ledger."""

    def __init__(self, folder: Path, runner: Runner) -> None:
        self.folder = folder
        self.ledger = begun(folder / "ledger.db")
        self.environment = {"DPSKETCH_LEDGER": f"sqlite:///{folder / 'ledger.db'}", "TMPDIR": str(folder / "no")}
        self._runner = runner
        (folder / "v.csv").write_text("page\n" + "".join(f"/{i % 7}\n" for i in range(100)))

    def run(
        self, *arguments: object, step: str = "none", how: str = "kill", once: bool = False, largest_file: int = 0
    ) -> SimpleNamespace:
        """Run a command in a process of its own, ended at a step."""
        command = {"arguments": [str(each) for each in arguments], "folder": str(self.folder)}
        ending = {"step": step, "how": how, "once": once, "largest_file": largest_file}
        return self._runner(**command, **ending, environment=self.environment)

    def ok(self, *arguments: object) -> str:
        done = self.run(*arguments)
        assert done.code == 0, done.err
        return done.err

    def names(self) -> set[str]:
        """Return the files that are there, without the source and the ledger's."""
        return {path.name for path in self.folder.iterdir() if not path.name.startswith(("ledger.db", "v.csv"))}

    def charges(self, dataset: str = "d") -> list[bool | None]:
        """Say of each charge whether its release was written."""
        return [entry.written for entry in self.ledger.history(dataset)]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    running = Runner(tmp_path_factory.mktemp("said"))
    with running.process:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, runner: Runner) -> Path:
    """Sketches that every test takes copies of."""
    place = Place(tmp_path_factory.mktemp("made"), runner)
    place.ok("build", "distinct", "v.csv", "--key", "page", "-o", "c.sketch")
    place.ok("build", "moment", "v.csv", "--key", "page", "--p", "0.5", "--size", "20", "-o", "m.sketch")
    place.ok("build", "moment", "v.csv", "--key", "page", "--like", "m.sketch", "-o", "n.sketch")
    return place.folder


@pytest.fixture
def place(made: Path, tmp_path: Path, runner: Runner) -> Place:
    for name in ("c.sketch", "m.sketch", "n.sketch"):
        shutil.copy(made / name, tmp_path / name)
    return Place(tmp_path, runner)


def release(sketch: str, *more: str, output: str = "out.dps") -> list[str]:
    budget = PURE if sketch == "c.sketch" else BUDGET
    return ["release", sketch, *budget, "--dataset", "d", "-o", output, *more]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_pipe_does_not_leave_a_sketch_that_was_released(place: Place, stream: str) -> None:
    """`dpsketch release m.sketch … --json | true`, with a reader that is gone before the first byte."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dpsketch", *release("m.sketch", "--json")]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    environment = {**os.environ, **place.environment}
    done = subprocess.run(command, cwd=place.folder, env=environment, check=False, timeout=60, **streams)
    os.close(writer)
    assert done.returncode == 1
    assert place.names() == {"c.sketch", "n.sketch", "out.dps"}
    assert dps.load(place.folder / "out.dps").charge.id == 1
    assert place.charges() == [True]


@pytest.mark.parametrize(
    ("step", "how"),
    [
        *((step, "kill") for step in ("charge", "draw", "fit", "close", "write", "finish", "overwrite", "place")),
        ("draw", "interrupt"),
        ("overwrite", "interrupt"),
        ("fit", "broken"),
        ("overwrite", "broken"),
    ],
)
def test_a_sketch_and_its_release_are_never_both_there(place: Place, step: str, how: str) -> None:
    """Whatever ends the command: nothing is in place yet, and in the end there is one release and no sketch."""
    before = (place.folder / "m.sketch").read_bytes()
    ended = place.run(*release("m.sketch"), step=step, how=how)
    assert ended.code == {"kill": -9, "interrupt": 130}.get(how, 1)
    assert "out.dps" not in place.names()
    if step == "write":
        # Its charge is closed, and part of it may have been seen: the ledger pays for no second one.
        assert (place.folder / "m.sketch").read_bytes() == before
        assert "was charged before, as row 1 of dataset 'd'" in place.run(*release("m.sketch")).err
        assert place.charges() == [True]
        return
    if step in ("charge", "draw", "fit", "close"):
        # Nothing was published: the sketch is as it was, and out comes one release.
        assert (place.folder / "m.sketch").read_bytes() == before
        place.ok(*release("m.sketch"))
    else:
        refused = place.run(*release("m.sketch"))
        assert refused.code == 1
        assert "dpsketch recover out.dps" in refused.err
        place.ok("recover", "out.dps")
        assert place.charges() == [True]
    assert place.names() == {"c.sketch", "n.sketch", "out.dps"}
    assert dps.load(place.folder / "out.dps").charge in [
        Charge(entry.dataset, entry.id, entry.digest) for entry in place.ledger.history("d")
    ]
    assert place.ledger.verify() == []


@pytest.mark.parametrize("step", ["write", "overwrite", "place"])
def test_parts_and_their_merge_are_never_both_there(place: Place, step: str) -> None:
    command = ["merge", "m.sketch", "n.sketch", "-o", "both.sketch"]
    ended = place.run(*command, step=step)
    assert ended.code == -9
    if step == "write":
        assert {"m.sketch", "n.sketch"} < place.names()
        place.ok(*command)
    else:
        place.ok("recover", "both.sketch")
    assert place.names() == {"c.sketch", "both.sketch"}
    place.ok(*release("both.sketch"))


@pytest.mark.parametrize(("step", "how"), [("draw", "kill"), ("close", "kill"), ("draw", "interrupt"), ("fit", "full")])
def test_a_charge_of_which_nothing_was_written_is_used_again(place: Place, step: str, how: str) -> None:
    place.ledger.create("d", epsilon=1.5, delta=0, unit=dps.per_record())
    ended = place.run(*release("c.sketch"), step=step, how=how)
    assert ended.code == {"kill": -9, "interrupt": 130, "full": 1}[how]
    assert place.charges() == [False]
    if how != "kill":
        assert "charge 1 to dataset 'd' was made, and nothing of its release was written" in ended.err
        assert "uses that charge again" in ended.err
    assert "nothing was written" in place.run("ledger", "history", "d").out
    # Another budget is another payment, which the total does not cover.
    other = place.run("release", "c.sketch", "--epsilon", "0.9", "--delta", "0", "--dataset", "d", "-o", "out.dps")
    assert other.code == 3
    assert "BudgetExceeded" in other.err
    assert "Used charge 1 to dataset 'd' again" in place.ok(*release("c.sketch"))
    assert place.charges() == [True]
    assert dps.load(place.folder / "out.dps").charge.id == 1
    # It was written now: once more is one more payment.
    refused = place.run(*release("c.sketch", output="again.dps"))
    assert "BudgetExceeded" in refused.err
    assert "again.dps" not in place.names()


def test_what_may_have_been_seen_is_never_drawn_again(place: Place) -> None:
    """The disk failed while the release was written: its first bytes may be on it."""
    ended = place.run(*release("c.sketch"), step="write", how="broken")
    assert "not drawn again, and the charge stays" in ended.err
    assert place.charges() == [True]
    place.ok(*release("c.sketch"))
    assert place.charges() == [True, True]


@pytest.mark.parametrize("step", ["finish", "rename"])
def test_a_whole_release_is_put_in_place_without_a_charge(place: Place, step: str) -> None:
    umask = os.umask(0o022)
    os.umask(umask)
    ended = place.run("run", "distinct", "v.csv", "--key", "page", *PURE, "--dataset", "d", "-o", "out.dps", step=step)
    assert ended.code == -9
    assert "out.dps" not in place.names()
    hidden = place.folder / ".out.dps.unfinished"
    assert hidden.stat().st_mode & 0o777 == (0o600 if step != "rename" else 0o666 & ~umask)
    again = place.run("run", "distinct", "v.csv", "--key", "page", *PURE, "--dataset", "d", "-o", "out.dps")
    assert again.code == 1
    assert "`dpsketch recover out.dps`" in again.err
    place.ok("recover", "out.dps")
    assert place.charges() == [True]
    assert dps.load(place.folder / "out.dps").charge.id == 1
    assert (place.folder / "out.dps").stat().st_mode & 0o777 == 0o666 & ~umask
    assert not hidden.exists()
    nothing = place.run("recover", "out2.dps")
    assert nothing.code == 1
    assert "nothing waits" in nothing.err


def test_a_file_that_came_into_being_meanwhile_is_left(place: Place, tmp_path: Path) -> None:
    """Two commands with one output: the second is told so. A file that something else wrote is left as it is."""
    command = ["run", "distinct", "-", "--key", "page", *PURE, "--dataset", "d", "-o", "out.dps"]
    pipes, environment = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}, {**os.environ, **place.environment}
    with subprocess.Popen(
        [sys.executable, "-m", "dpsketch", *command], cwd=tmp_path, env=environment, **pipes
    ) as first:
        for _ in range(3000):
            if (tmp_path / ".out.dps.unfinished").exists():
                break
            time.sleep(0.02)
        second = place.run(*release("c.sketch"))
        assert "another command is writing out.dps" in second.err
        (tmp_path / "out.dps").write_bytes(b"someone else's")
        _, error = first.communicate(b"page\n/a\n", timeout=60)
    assert first.returncode == 1
    assert b"came into being meanwhile" in error
    assert (tmp_path / "out.dps").read_bytes() == b"someone else's"
    place.ok("recover", "out.dps", "--overwrite")
    assert dps.load(tmp_path / "out.dps").charge.id == 1


def test_a_file_that_has_no_room_is_found_out_before_anything_is_charged(place: Place) -> None:
    command = ["run", "counts", "v.csv", "--key", "page", *PURE, "--dataset", "d"]
    done = place.run(*command, "-o", "out.dps", largest_file=200_000)
    assert done.code == 1
    assert "cannot write out.dps" in done.err
    assert "Nothing was read, charged or written" in done.err
    assert place.ledger.datasets() == []
    assert place.names() == {"c.sketch", "m.sketch", "n.sketch"}


def test_a_run_whose_disk_filled_up_writes_its_paid_release_elsewhere(place: Place) -> None:
    """It cannot be drawn again: what it was made from is gone with the process. Without room it names what is lost."""
    (place.folder / "results").mkdir()
    command = ["run", "distinct", "v.csv", "--key", "page", *PURE, "--dataset", "d", "-o", "results/out.dps"]
    done = place.run(*command, step="fit", how="full", once=True)
    assert done.code == 1
    found = list(place.folder.glob("out-*.dps"))
    assert len(found) == 1
    assert str(found[0]) in done.err
    assert dps.load(found[0]).charge.id == 1
    assert list((place.folder / "results").iterdir()) == []
    lost = place.run(*command, step="fit", how="full")
    assert lost.code == 1
    assert "charge 2 to dataset 'd' was made" in lost.err
    assert "the release is lost and the charge stays" in lost.err
    assert place.charges() == [True, False]
