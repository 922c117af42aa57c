"""Reproducing the papers: every figure and table that they print, the numbers checked, ours beside them.

What a paper claims, the script that reproduces it and the numbers that are expected of it lie in ``papers/<name>``.
This package finds them, runs the script, checks every number and writes the report.
"""

from dpsketch.reproduce.document import write_index, write_report
from dpsketch.reproduce.expected import Expected, Reproduced, Tolerance
from dpsketch.reproduce.papers import PAPERS, Reproduction, find_papers, reproduce
from dpsketch.reproduce.run import Run

__all__ = [
    "PAPERS",
    "Expected",
    "Reproduced",
    "Reproduction",
    "Run",
    "Tolerance",
    "find_papers",
    "reproduce",
    "write_index",
    "write_report",
]
