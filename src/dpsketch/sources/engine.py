"""DuckDB, set up for one task: to sort through a private directory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_THREADS = 2  # enough to keep pace with a sketch; each holds memory of its own


def load() -> None:
    """Load DuckDB's library. An interrupt while it loads aborts the process, so nothing may lie on disk by then."""
    importlib.import_module("duckdb")


def connect(*, memory_limit: str | None = None, temp_directory: str = "") -> duckdb.DuckDBPyConnection:
    """Open a database in memory that loads no extension and writes nowhere but into ``temp_directory``, if given."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": _THREADS,
        "temp_directory": temp_directory,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if memory_limit is not None:
        settings["memory_limit"] = memory_limit
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET enable_progress_bar = false")  # it writes on standard output
    return connection
