"""Mutants of kernels and of what a short question asks in their place, and of how files are read."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_LOCATIONS = "tests/property/test_locations.py -k"

KERNELS = [
    Mutant(
        "few-texts-of-another-seed",
        "_hash_text_array",
        "xxh64_intdigest(texts[start:stop].data, 42)",
        "xxh64_intdigest(texts[start:stop].data, 0)",
        "tests/unit/test_hashing.py",
        "a question about a few keys asks for other keys",
    ),
    Mutant(
        "few-integers-of-another-seed",
        "_hash_integer_array",
        "xxh64_intdigest(word.tobytes(), 42)",
        "xxh64_intdigest(word.tobytes(), 0)",
        "tests/unit/test_hashing.py",
        "a question about a few numbers asks for other numbers",
    ),
    Mutant(
        "answers-of-the-last-piece",
        "row_values",
        "out=values[r, start : start + PIECE]",
        "out=values[r, : len(piece)]",
        "tests/unit/test_kernels.py -k reading",
        "the keys of a second piece are answered in place of the first's",
    ),
    Mutant(
        "median-beside-the-middle",
        "median_of_rows",
        "medians[first : first + _BLOCK] = rows[middle]",
        "medians[first : first + _BLOCK] = rows[middle - 1]",
        f"{_LOCATIONS} oracles",
        "a question is answered by the row below the median",
    ),
    Mutant(
        "huber-counts-what-is-cut",
        "huber_of_rows",
        "np.count_nonzero(cut == gap, axis=0)",
        "np.count_nonzero(cut < threshold, axis=0)",
        f"{_LOCATIONS} oracles",
        "an answer is taken by other steps",
    ),
    Mutant(
        "tukey-stops-early",
        "tukey_of_rows",
        "np.abs(step) > 1e-6 * threshold",
        "np.abs(step) > 1e-3 * threshold",
        f"{_LOCATIONS} oracles",
        "a question is answered before the answer stands",
    ),
    Mutant(
        "keys-that-are-done-go-on",
        "_settled",
        "np.where(live, better, state)",
        "better",
        f"{_LOCATIONS} blocks",
        "an answer depends on the other keys that were asked for",
    ),
    Mutant(
        "machine-code-of-other-sources",
        "_digest_of_sources",
        'digest.update(source.name.encode() + b"\\0" + source.read_bytes())',
        "digest.update(source.name.encode())",
        "tests/unit/test_kernels.py -k another_module",
        "a kernel runs with what its callees were before",
    ),
    Mutant(
        "sorted-by-key",
        "sources.source:_sorted",
        'for name in ("user_", "key_")',
        'for name in ("key_", "user_")',
        "tests/unit/test_source_batches.py -k exact_user_then_key",
        "a source is not ordered by user",
    ),
]

READ = [
    Mutant(
        "digest-of-a-part",
        "_digest",
        "digest.update(data[place + 64 :])",
        "digest.update(data[place + 64 : -1])",
        "tests/unit/test_file_writing.py -k changed_byte",
        "a part of a file is not in its digest",
    ),
    Mutant(
        "file-not-checked",
        "_checked_bytes",
        "_check(view)",
        "pass",
        "tests/unit/test_file_writing.py -k changed_byte",
        "a damaged file is read as if it were whole",
    ),
]
