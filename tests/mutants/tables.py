"""Mutants of how tables are read: options, compound keys, conditions, counts."""

from __future__ import annotations

from tests.mutants.gate import Mutant

SOURCES = [
    Mutant(
        "float-keys-rounded",
        "canonical.py",
        "pc.equal(pc.floor(values), values)",
        "pc.is_finite(values)",
        "tests/unit/test_canonical_keys.py",
        "a number with a fraction is counted as another key",
    ),
    Mutant(
        "zones-forgotten",
        "canonical.py",
        'return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")',
        "return text",
        "tests/unit/test_canonical_keys.py",
        "a local time and one in UTC are one key",
    ),
    Mutant(
        "weights-of-others",
        "sketches/frames.py",
        "given |= {name: _without(given[name], missing)",
        "given |= {name: _without(given[name], missing[::-1])",
        "tests/unit/test_canonical_keys.py",
        "a missing weight moves the weights of other records",
    ),
    Mutant(
        "comparison-of-one-interval",
        "cli/arithmetic.py",
        "each = (1 + confidence) / 2",
        "each = confidence",
        "tests/cli/test_two_releases.py",
        "the interval of a difference holds less often than it says",
    ),
    Mutant(
        "numpy-floats-declared",
        "columns.py",
        'dtype.kind not in "Of"',
        'dtype.kind not in "O"',
        "tests/unit/test_canonical_keys.py",
        "a header tells whether there were records",
    ),
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
    Mutant(
        "csv-marks-of-blocks",
        "sources/blocks.py",
        'whole = b"\\n" + rows if rows[: len(BOM)] == BOM else rows',
        "whole = rows",
        "tests/unit/test_one_record_alone.py",
        "a key that begins with a mark is another one where a block begins, which other records decide",
    ),
    Mutant(
        "csv-unclosed-name",
        "sources/text.py",
        'if any(re.search(r"[\\r\\n]", name) for name in names if name not in columns.names):',
        "if False:",
        "tests/unit/test_one_record_alone.py",
        "where the header ends is up to the records",
    ),
]
