"""Mutants of what runs without the compiler: a form in NumPy that is not the kernel's to the bit."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_PLAIN = "tests/property/test_plain_kernels.py -k"
_BOUNDED = f"{_PLAIN} users_are_bounded"
_NUMBERS = f"{_PLAIN} keys_have_the_same_numbers"

HASHES = [
    Mutant(
        "plain-hash-of-long-texts",
        "_hash_ranges",
        "zip(lanes, (U1, U7, U12, U18), strict=True)",
        "zip(lanes, (U1, U7, U18, U12), strict=True)",
        f"{_PLAIN} pieces",
        "a long key is another key in a small run",
    ),
    Mutant(
        "plain-hash-of-four-bytes",
        "_hash_ranges",
        "np.flatnonzero(stop - start >= 4)",
        "np.flatnonzero(stop - start > 4)",
        f"{_PLAIN} ranges_of_bytes",
        "a key whose last word is whole is another key in a small run",
    ),
    Mutant(
        "plain-hash-of-integers",
        "_hash_integers",
        "_rotate((seed + P5 + U8) ^ _round(",
        "_rotate((seed + P5) ^ _round(",
        f"{_PLAIN} integers_have",
        "an integer is another key in a small run",
    ),
]

CELLS = [
    Mutant(
        "plain-sign",
        "_found",
        "return buckets.astype(np.int64), 1 - ((z >> U63) << U1).astype(np.int64)",
        "return buckets.astype(np.int64), ((z >> U63) << U1).astype(np.int64) - 1",
        f"{_PLAIN} tables_hold",
        "what a small run adds, a large one subtracts",
    ),
    Mutant(
        "plain-bucket",
        "_found",
        "buckets = (((z << U1) >> U32) * np.uint64(width)) >> U32",
        "buckets = ((z >> U32) * np.uint64(width)) >> U32",
        f"{_PLAIN} tables_hold",
        "a small run counts a key in another cell",
    ),
    Mutant(
        "plain-row-left-out",
        "_add_weighted",
        "zip(table, row_keys, strict=True)",
        "zip(table[1:], row_keys[1:], strict=True)",
        f"{_PLAIN} tables_hold",
        "a small run leaves one row of a table empty",
    ),
    Mutant(
        "plain-weights-of-the-first-piece",
        "_add_weighted",
        "signs * weights[start : start + ADD_PIECE]",
        "signs * weights[: len(piece)]",
        f"{_PLAIN} pieces",
        "records of a second piece have the weights of the first",
    ),
    Mutant(
        "plain-answers-of-the-last-piece",
        "_row_values",
        "values[start : start + ADD_PIECE, r] =",
        "values[: len(piece), r] =",
        f"{_PLAIN} pieces",
        "the keys of a second piece are answered in place of the first's",
    ),
    Mutant(
        "plain-median-beside-the-middle",
        "_sorted_medians",
        "[:, values.shape[1] // 2].astype",
        "[:, (values.shape[1] - 1) // 3].astype",
        f"{_PLAIN} locations",
        "a small question is answered by the row below the median",
    ),
    Mutant(
        "plain-huber-counts-what-is-cut",
        "_huber",
        "inside += cut == gap",
        "inside += cut < threshold",
        f"{_PLAIN} locations",
        "a small question takes other steps to its answer",
    ),
    Mutant(
        "plain-tukey-stops-early",
        "_tukey",
        "going = np.abs(step) > 1e-6 * threshold",
        "going = np.abs(step) > 1e-3 * threshold",
        f"{_PLAIN} locations",
        "a small question is answered before the answer stands",
    ),
]

USERS = [
    Mutant(
        "plain-one-key-more",
        "_keep_first",
        "kept = np.less(key",
        "kept = np.less_equal(key",
        _BOUNDED,
        "a user of a small run has one key more than the bound",
    ),
    Mutant(
        "plain-units-unbounded",
        "_keep_first",
        "np.minimum(sums[key[firsts] - 1], max_units)",
        "sums[key[firsts] - 1]",
        _BOUNDED,
        "a user of a small run repeats a key beyond the bound",
    ),
    Mutant(
        "plain-ranks-cut-short",
        "by_owner_and_rank",
        "if (ranks[sorting[tied]] != ranks[sorting[tied + 1]]).any():",
        "if False:",
        f"{_PLAIN} all_bits_of_their_rank",
        "a user's keys are ordered by some bits of their rank in a small run, and equal ones are not put together",
    ),
    Mutant(
        "plain-users-met-unseen",
        "_share",
        "inside = places < len(long)",
        "inside = places < len(long) - 1",
        f"{_PLAIN} remembered",
        "the last user of a partial may be in another as well",
    ),
    Mutant(
        "plain-sums-beyond-64-bits",
        "_rank_seconds",
        "if max_units <= 2**62 // max(1, len(order)) else np.inf",
        "if max_units <= 2**62 else np.inf",
        f"{_PLAIN} might_pass",
        "a user's sums wrap round in a small run",
    ),
]

KEYS = [
    Mutant(
        "plain-identity-without-its-last-byte",
        "_identify_texts",
        "FIRST_BYTES[np.minimum(lengths - head, 7)]",
        "FIRST_BYTES[np.minimum(lengths - head, 6)]",
        f"{_PLAIN} same_identities",
        "keys of fifteen bytes that differ in the last are one in a small run",
    ),
    Mutant(
        "plain-sums-of-the-last-batch",
        "group",
        "units[numbers[known]] += sums[known]",
        "units[numbers[known]] = sums[known]",
        _NUMBERS,
        "a key's count is that of its last batch",
    ),
    Mutant(
        "plain-tags-are-identities",
        "group",
        "near & (number < size) & (ids[number] == row_ids[keys[asked]]).all(axis=1)",
        "near & (number < size) & (ids[number] == row_ids[keys[asked]]).any(axis=1)",
        f"{_PLAIN} half_of_their_identity",
        "two keys that share half of an identity are one in a small run",
    ),
    Mutant(
        "plain-names-beside-each-other",
        "settle",
        "names[_spans(edges[numbers], lengths)] = data[_spans(row_edges[rows], lengths)]",
        "names[_spans(edges[numbers], lengths)] = data[_spans(row_edges[rows[::-1]], lengths)]",
        _NUMBERS,
        "a count is published under another key's name",
    ),
    Mutant(
        "plain-calls-not-counted",
        "_affordable",
        "_taken += seconds",
        "",
        f"{_PLAIN} many_small_calls",
        "a long run of small calls never loads the compiler",
    ),
]

SMALL = [
    Mutant(
        "plain-mark",
        "_mark",
        "levels & (~levels + np.uint64(1))",
        "levels & ~(levels + np.uint64(1))",
        f"{_PLAIN} mark_the_same_bits",
        "a small run counts distinct keys by other bits than a large one",
    ),
    Mutant(
        "plain-text-cells",
        "_text_cells",
        "going_on = sum(256**k for k in range(depth - j))",
        "going_on = sum(256**k for k in range(depth - j - 1))",
        f"{_PLAIN} same_cells",
        "a small run counts a text in another cell of the tree",
    ),
    Mutant(
        "plain-messages-in-32-bits",
        "read",
        "bases[:, None] + offsets, variances.astype(np.float64)",
        "bases[:, None] + offsets, variances",
        "tests/property/test_plain_messages.py -k read_in",
        "estimates depend on how many keys were asked for before",
    ),
    Mutant(
        "sorted-in-memory-by-key",
        "_sorted",
        'sort_keys=[(name, "ascending") for name in names]',
        'sort_keys=[(name, "ascending") for name in names[::-1]]',
        "tests/unit/test_source_order.py -k exact_user_then_key",
        "a small source is not ordered by user",
    ),
]

READ = [
    Mutant(
        "digest-of-a-part",
        "_read",
        "digest.update(data[at:end])",
        "digest.update(data[at : end - 1])",
        "tests/unit/test_file_reading.py -k large_file_is_read",
        "a part of a file is not in its digest",
    ),
    Mutant(
        "rest-of-a-file-not-checked",
        "checked_bytes",
        "digest.update(rest)",
        "",
        "tests/unit/test_file_reading.py -k pipe",
        "what a pipe brings after its beginning is not what was checked",
    ),
]
