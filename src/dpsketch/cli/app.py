"""The commands, in the order a newcomer meets them. The module of one is loaded when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from dpsketch.cli.once import options_once

__all__ = ["app"]

_HELP = """Publish counts of sensitive records with a proven guarantee.

\b
Which sketch do I need?
  histogram Which keys are there, and how often does each occur?   run histogram
  counts    The same for keys I name, and no key may be stored.    run counts
  heavy     Which are frequent? I have no list, and store no key.  run heavy
  sparse    The same under pure ε, for mid-sized counts.           run sparse
  moment    One number that says how skewed the stream is (F_p).   run moment
  density   Where do points lie? Densities, scores, classes.       run density
  distinct  How many different keys are there?                     run distinct
  ranges    How many values lie in a range? Quantiles?             run ranges
  local     People report for themselves; I am not trusted.        local report
  serve     Collect reports and show releases over HTTP.           serve --demo

Not sure?  dpsketch plan --question keys  compares the first four.

A first look, on data of its own:  dpsketch demo

\b
From a file to an answer:
  dpsketch run histogram visits.csv --key url --epsilon 1 --delta 1e-6 -o visits.dps
  dpsketch top visits.dps
  dpsketch query visits.dps /index.html
"""

# Each command's module, and its function there; "app" where it has commands of its own.
_HOMES = {
    "demo": "demo:demo",
    "run": "run:run",
    "build": "run:build",
    "merge": "merge:merge",
    "release": "run:release",
    "recover": "run:recover",
    "query": "query:query",
    "top": "query:top",
    "compare": "arithmetic:compare",
    "add": "arithmetic:add",
    "subtract": "arithmetic:subtract",
    "inspect": "query:inspect",
    "plot": "query:plot",
    "audit": "audit:audit",
    "plan": "plan:plan",
    "reproduce": "reproduce:reproduce",
    "ledger": "ledger:app",
    "local": "local:app",
    "serve": "serve:app",
}


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        module, _, attribute = _HOMES[name].partition(":")
        found = getattr(import_module(f"dpsketch.cli.{module}"), attribute)
        alone = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name)(found)
        return options_once(get_group(alone).commands[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": _Commands()})


app = typer.Typer(
    name="dpsketch",
    cls=_Group,
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from dpsketch import __version__

        typer.echo(__version__)
        raise typer.Exit()
