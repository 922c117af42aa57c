"""The command line. Results go to standard output, progress and messages to standard error."""

from dpsketch.cli.app import main

__all__ = ["main"]
