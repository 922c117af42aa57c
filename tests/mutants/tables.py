"""Mutants of how tables are read: options, compound keys, conditions, counts."""

from __future__ import annotations

from tests.mutants.gate import Mutant

SOURCES = [
    Mutant(
        "option-given-twice",
        "cli/once.py",
        "if times > 1 and",
        "if times > 2 and",
        "tests/cli/test_repeated_options.py",
        "an option that is given twice counts once, without a word",
    ),
    Mutant(
        "expression-any-function",
        "sources/expressions.py",
        "if odd or name not in _FUNCTIONS else None",
        "if odd else None",
        "tests/unit/test_row_expressions.py",
        "a condition may read files, or other rows",
    ),
    Mutant(
        "query-of-many-rows",
        "sources/queries.py",
        "and not any(others.values())",
        "",
        "tests/cli/test_sql.py",
        "a query may let one record touch many rows",
    ),
    Mutant(
        "count-below-nothing",
        "sources/records.py",
        "if pc.any(pc.less(whole, _ZERO)).as_py():",
        "if False:",
        "tests/cli/test_count_column.py",
        "a row may stand for fewer records than none",
    ),
    Mutant(
        "decoded-intervals-of-the-chosen",
        "answers.py",
        "confidence_in_each(confidence, len(distinct))",
        "confidence_in_each(confidence, 1)",
        "tests/cli/test_answers_as.py",
        "intervals of keys that were picked hold one by one only",
    ),
]
