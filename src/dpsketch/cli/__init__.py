"""The command line. Results go to standard output, progress and messages to standard error."""

from __future__ import annotations

import atexit
import errno
import gc
import signal
import sys
import warnings

__all__ = ["main"]

# Typer turns Ctrl-C into this exit code; ours for anything refused or given up is 1.
_TYPER_INTERRUPTED = 130
# So many new objects before Python looks for cycles among them; by default it is 700.
_COLLECTED_AFTER = 20_000


def main() -> None:
    """Run the command line: exit 0 when done, 1 when refused, 2 on wrong usage."""
    # Nearly all that a command makes is modules, which stay. Looking for cycles among them takes a tenth of the time of
    # a question, half of it at the end, when all goes anyway.
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(_leave_cycles)
    from dpsketch.cli.app import app
    from dpsketch.errors import DpsketchError

    # The commands that release refuse a large δ unless --yes says that it is meant; audits draw at one.
    warnings.filterwarnings("ignore", message="δ = ")
    # An orderly end removes temporary files, which hold records.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TYPER_INTERRUPTED))
    try:
        app()
    except DpsketchError as error:
        hint = getattr(error, "sensitive_hint", None)
        if hint and sys.stderr.isatty():
            # Where a bad record is may be told to whoever holds the records, and to nobody else.
            print(f"(For your eyes: {hint})", file=sys.stderr)
        from dpsketch.cli.words import in_options

        _fail(f"{type(error).__name__}: {in_options(str(error))}")
    except SystemExit as stop:
        if stop.code == _TYPER_INTERRUPTED:
            _fail("interrupted; nothing was written.")
        raise
    except BrokenPipeError:
        # The reader of our output went away (as `| head` does): nothing is left to say, nor anyone to say it to.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail("no space is left on the disk; nothing was written.")
        _fail(f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}.")
    except MemoryError:
        _fail("not enough memory; nothing was written. A smaller sketch (--rows, --width) needs less.")


def _leave_cycles() -> None:
    if "duckdb" not in sys.modules:  # DuckDB complains of what of its own is still there at the end
        gc.freeze()


def _fail(message: str) -> None:
    print(f"dpsketch: {message}", file=sys.stderr)
    sys.exit(1)
