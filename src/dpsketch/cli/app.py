"""The commands, in the order a newcomer meets them."""

from __future__ import annotations

import typer

from dpsketch.cli import asking, auditing, demo, ledger, local, making, planning, reproducing, serving

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

app = typer.Typer(
    name="dpsketch",
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


app.command("demo")(demo.demo)
app.command("run")(making.run)
app.command("build")(making.build)
app.command("merge")(making.merge)
app.command("release")(making.release)
app.command("recover")(making.recover)
app.command("query")(asking.query)
app.command("top")(asking.top)
app.command("inspect")(asking.inspect)
app.command("plot")(asking.plot)
app.command("audit")(auditing.audit)
app.command("plan")(planning.plan)
app.command("reproduce")(reproducing.reproduce)
app.add_typer(ledger.app, name="ledger")
app.add_typer(local.app, name="local")
app.add_typer(serving.app, name="serve")
