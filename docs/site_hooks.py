"""What the site generates: the command line's reference from ``--help``, and a page for each notebook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>~?([^<]+)</code>")


def on_config(config: Any) -> Any:
    """List pages that the navigation does not name under Explanation, so that none is lost."""
    named = set(_leaves(config["nav"]))
    section = next(part["Explanation"] for part in config["nav"] if "Explanation" in part)
    section.extend(page.name for page in sorted(DOCS.glob("*.md")) if page.name not in named)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    pages = {"reference/cli.md": cli_reference()}
    pages |= {f"notebooks/{path.stem}.md": notebook_page(path) for path in (DOCS / "notebooks").glob("*.ipynb")}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the results of the long checks to their page."""
    return f"{markdown}\n{verified()}" if page.file.src_uri == "explanation/verified.md" else markdown


def verified() -> str:
    """Return the table of verified.json, and name the checks that were run on other code than the current commit's."""
    data = DOCS / "explanation" / "verified.json"
    rows = json.loads(data.read_text(encoding="utf-8")) if data.exists() else {}
    if not rows:
        return "Not run yet.\n"
    lines = ["| check | pieces | run | held | commit | date | minutes |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        held = row["run"] - len(row["failed"])
        cells = [name, row["pieces"], row["run"], held, f"`{row['commit']}`", row["date"], row["minutes"]]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    failed = [f"- {name}: {piece}" for name, row in rows.items() for piece in row["failed"]]
    lines += ["", "Did not hold:", "", *failed] if failed else []
    older = [
        name for name, row in rows.items() if any(_digest(folder) not in ("", of) for folder, of in row["code"].items())
    ]
    lines += ["", f"Run on other code than today's: {', '.join(older)}."] if older else []
    return "\n".join(lines) + "\n"


def _digest(folder: str) -> str:
    """Return git's digest of a folder at the current commit; empty outside of a clone."""
    asked = subprocess.run(
        ["git", "rev-parse", f"HEAD:{folder}"], cwd=DOCS, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() if asked.returncode == 0 else ""


def on_page_content(html: str, **_: Any) -> str:
    """Turn the roles of docstrings into plain names: they are written for readers of the source."""
    return _ROLE.sub(lambda role: f"<code>{role[1].rpartition('.')[2] if role[0].count('~') else role[1]}</code>", html)


def commands() -> Iterator[tuple[str, ...]]:
    """Yield every command that can be typed, as its words."""
    from dpsketch.cli.app import app

    for words, _ in walk((), app):
        yield words


def walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command, where it does something itself, and all below it, with the words to type."""
    import click

    if not isinstance(command, click.Group):
        yield words, command
        return
    if words and command.invoke_without_command:
        yield words, command
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from walk((*words, name), command.get_command(context, name))


def help_of(*words: str) -> str:
    """Return what a command prints with ``--help``."""
    from click.testing import CliRunner

    from dpsketch.cli.app import app

    shown = CliRunner().invoke(app, [*words, "--help"], prog_name="dpsketch", env={"COLUMNS": "110", "TERM": "dumb"})
    return shown.output.strip()


def cli_reference() -> str:
    """Return the reference of the command line: what every command prints with ``--help``."""
    parts = [
        "# Command line",
        "Results go to standard output, messages and errors to standard error. `--quiet` leaves results and errors "
        "only. "
        "With `--json` an error is the last line of standard error, as JSON: "
        '`{"error": {"type": …, "message": …, "exit_code": …}}`.',
        "| exit code | meaning |\n|---|---|\n"
        "| 0 | done |\n"
        "| 1 | the data, a file, a ledger or the machine does not allow it; an audit or a check failed |\n"
        "| 2 | wrong usage: unknown, missing or contradicting options, or a value that an option does not take |\n"
        "| 3 | the budget of the dataset does not cover the release |\n"
        "| 4 | the file to be written exists |\n"
        "| 130 | interrupted |",
        'For completion of commands and options, put `eval "$(_DPSKETCH_COMPLETE=bash_source dpsketch)"` into your '
        "`~/.bashrc` (`zsh_source` and `fish_source` for other shells).",
        f"```text\n{help_of()}\n```",
    ]
    for words in commands():
        parts += [f"## dpsketch {' '.join(words)}", f"```text\n{help_of(*words)}\n```"]
    return "\n\n".join(parts) + "\n"


def notebook_page(path: Path) -> str:
    """Return a notebook as a page: its text, its code, and what the code printed."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", [])) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    parts.append(f"The notebook is `docs/notebooks/{path.name}` in the repository.")
    return "\n\n".join(parts) + "\n"


def _leaves(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for part in nav:
                yield from _leaves(part)
        case dict():
            for part in nav.values():
                yield from _leaves(part)
