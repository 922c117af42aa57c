"""The command line. Results go to standard output, progress and messages to standard error."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import warnings

__all__ = ["main"]

# So many new objects before Python looks for cycles among them; by default it is 700.
_COLLECTED_AFTER = 20_000


def main() -> None:
    """Run the command line, and exit with the code that :mod:`dpsketch.cli.exits` gives an error; 0 when done."""
    # Nearly all that a command makes is modules, which stay. Looking for cycles among them takes a tenth of the time of
    # a question, half of it at the end, when all goes anyway.
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(_leave_cycles)
    from dpsketch.cli.app import app
    from dpsketch.cli.exits import INTERRUPTED, UsageError, fail, fail_interrupted, json_asked
    from dpsketch.cli.output import say_held
    from dpsketch.errors import DpsketchError

    # The commands that release refuse a large δ unless --yes says that it is meant; audits draw at one.
    warnings.filterwarnings("ignore", message="δ = ")
    # An orderly end removes temporary files, which hold records.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    try:
        code = app(standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output went away (as `| head` does): nothing is left to say, nor anyone to say it to.
        sys.stderr.close()
        sys.exit(1)
    except (DpsketchError, OSError, MemoryError, UsageError) as error:
        hint = getattr(error, "sensitive_hint", None)
        if hint and sys.stderr.isatty() and not json_asked():
            # Where a bad record is may be told to whoever holds the records, and to nobody else.
            print(f"(For your eyes: {hint})", file=sys.stderr)
        fail(error)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            fail_interrupted()
        raise
    if code == INTERRUPTED:  # Typer returns this for Ctrl-C
        fail_interrupted()
    say_held()
    sys.exit(code if isinstance(code, int) else 0)


def _leave_cycles() -> None:
    if "duckdb" not in sys.modules:  # DuckDB complains of what of its own is still there at the end
        gc.freeze()
