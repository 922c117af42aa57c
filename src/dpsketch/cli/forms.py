"""The forms in which an answer is printed: a table, JSON, CSV, Markdown, or a Parquet file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.options import JsonOption
from dpsketch.cli.output import beside, print_estimates, say
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.privacy import Guarantee
    from dpsketch.results import Estimates

__all__ = ["Forms"]


@dataclass(frozen=True, slots=True)
class Forms:
    """Which form an answer has."""

    as_json: JsonOption = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row a key; a compound key has its columns.")] = (
        False
    )
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write the table to this Parquet file.")] = None

    def check(self) -> None:
        """Refuse two forms of one answer."""
        if self.as_json + self.as_csv + self.as_markdown + (self.parquet is not None) > 1:
            raise InvalidInput("--json, --csv, --markdown and --parquet are forms of one answer: choose one.")

    def show(self, found: Estimates, guarantee: Guarantee, key_columns: Sequence[str]) -> None:
        """Print the answer on standard output, or write it; except in JSON, what goes with it on standard error."""
        text = None
        if self.as_csv:
            text = found.to_csv(key_columns=key_columns)
        elif self.as_markdown:
            text = found.to_markdown(key_columns=key_columns)
        elif self.parquet is not None:
            self._write(found, guarantee, key_columns)
            text = ""
        if text is None:
            print_estimates(found, guarantee, as_json=self.as_json)
            return
        sys.stdout.write(text)
        beside(found, guarantee)
        if self.parquet is not None:
            say(f"Wrote {self.parquet}.")

    def _write(self, found: Estimates, guarantee: Guarantee, key_columns: Sequence[str]) -> None:
        import pyarrow.parquet

        table = found.to_arrow(key_columns=key_columns)
        said = {**(table.schema.metadata or {}), "guarantee": str(guarantee)}
        pyarrow.parquet.write_table(table.replace_schema_metadata(said), self.parquet)
