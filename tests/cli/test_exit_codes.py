"""The exit codes that the reference of the command line states, an error as JSON, and --quiet."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgers import begun

Runner = Callable[..., Any]

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
RUN = ("run", "histogram", "visits.csv", "--key", "url")

# What was typed, its exit code, and the class of its error.
TABLE = [
    ((*RUN, *BUDGET, "-o", "new.dps"), 0, None),
    ((*RUN, *BUDGET, "--rows", "3", "-o", "new.dps"), 2, "UsageError"),
    ((*RUN, *BUDGET, "--colour", "-o", "new.dps"), 2, "NoSuchOption"),
    ((*RUN, "--epsilon", "50", "--delta", "0", "-o", "new.dps"), 2, "InvalidInput"),
    (("run", "histogram", "visits.csv", "--key", "page", *BUDGET, "-o", "new.dps"), 1, "SourceError"),
    (("query", "none.dps", "/a"), 1, "FileNotFoundError"),
    (("ledger", "show", "nobody"), 1, "LedgerError"),
    ((*RUN, "--epsilon", "5", "--delta", "1e-6", "-o", "new.dps"), 3, "BudgetExceeded"),
    ((*RUN, *BUDGET, "-o", "there.dps"), 4, "OutputExists"),
]


@pytest.fixture
def folder(tmp_path: Path, dpsketch: Runner) -> Path:
    """A dataset with a total of ε = 2, and one release of it."""
    (tmp_path / "visits.csv").write_text("url,n\n" + "/a,5\n" * 100)
    assert dpsketch("ledger", "create", "visits.csv", "--epsilon", 2, "--delta", "1e-5").code == 0
    assert dpsketch(*RUN, *BUDGET, "-o", "there.dps").code == 0
    return tmp_path


@pytest.mark.parametrize(("arguments", "code", "error"), TABLE, ids=lambda each: None if each is None else str(each))
def test_each_kind_of_error_has_its_exit_code_and_leaves_what_is_there(
    folder: Path, dpsketch: Runner, arguments: tuple[str, ...], code: int, error: str | None
) -> None:
    paid_for = (folder / "there.dps").read_bytes()
    plain = dpsketch(*arguments)
    assert (folder / "there.dps").read_bytes() == paid_for
    assert plain.code == code, plain.err
    if error is None:
        return
    assert plain.out == ""
    assert "Traceback" not in plain.err
    for quiet in ((), ("--quiet",)):
        told = dpsketch(*arguments, "--json", *quiet)
        assert (told.code, told.out) == (code, "")
        document = json.loads(told.err)  # which is all that is there
        assert document["error"]["type"] == error
        assert document["error"]["exit_code"] == code
        assert document["error"]["message"].split()[-1] in plain.err


@pytest.mark.usefixtures("folder")
def test_no_command_replaces_a_file_that_is_there(dpsketch: Runner) -> None:
    """They are refused before anything is read: what they read is missing."""
    for words in (
        "build counts none.csv --key url -o",
        "release none.sketch --epsilon 1 --delta 0 -o",
        "merge none.sketch no.sketch -o",
        "local report none.csv --user u --key k --spec none.json -o",
        "serve --store none.db backup",
    ):
        assert dpsketch(*words.split(), "there.dps").code == 4, words


def test_quiet_leaves_results_and_errors(folder: Path, dpsketch: Runner) -> None:
    """Messages come beside JSON unless they are not wanted."""
    quiet = dpsketch(*RUN, *BUDGET, "--no-ledger", "--quiet", "-o", "quiet.dps")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert (folder / "quiet.dps").exists()
    told = dpsketch(*RUN, *BUDGET, "--no-ledger", "--json", "-o", "told.dps")
    assert told.json["output"] == "told.dps"
    assert "Read 100 records" in told.err
    asked = dpsketch("query", "quiet.dps", "/a", "--json", "-q")
    assert (asked.code, asked.err) == (0, "")
    assert asked.json["estimates"][0]["key"] == "/a"
    assert "Guarantee" in dpsketch("query", "quiet.dps", "/a").err
    refused = dpsketch(*RUN, *BUDGET, "--quiet", "-o", "there.dps")
    assert refused.code == 4
    assert refused.err.startswith("dpsketch: OutputExists: ")


@pytest.mark.parametrize(("sent", "as_json"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--json",))])
def test_an_interrupted_command_exits_with_130(tmp_path: Path, sent: signal.Signals, as_json: tuple[str, ...]) -> None:
    """Its input is a pipe that does not end. What is written is more than a pipe holds, so it has begun to read."""
    ledger = begun(tmp_path / "budget.db")
    paid = ("--ledger", "budget.db", "--dataset", "web")
    command = ["run", "histogram", "-", "--key", "url", *BUDGET, *paid, "-o", "new.dps", *as_json]
    with subprocess.Popen(
        [sys.executable, "-m", "dpsketch", *command],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(b"url\n" + b"/a\n" * 100_000)
        process.stdin.flush()
        process.send_signal(sent)
        code = process.wait(timeout=60)
        out, err = process.communicate()
    assert code == 130, err
    assert out == b""
    text = err.decode()
    if as_json:
        assert json.loads(text)["error"]["exit_code"] == 130
    else:
        assert text.strip() == "dpsketch: interrupted; nothing was written."
    assert not list(tmp_path.glob("*new.dps*"))
    assert ledger.datasets() == []


def test_an_interrupt_after_the_file_is_in_place_says_so(
    folder: Path, dpsketch: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads "nothing was written" would pay for a second release."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsketch.cli.run.tell", interrupted)
    done = dpsketch(*RUN, *BUDGET, "--no-ledger", "-o", "late.dps")
    assert done.code == 130
    assert done.err.strip().splitlines()[-1] == "dpsketch: interrupted; late.dps is in place."
    assert (folder / "late.dps").exists()
