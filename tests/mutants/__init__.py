"""Who tests the tests: the library broken on purpose, one line at a time, and the tests that must notice.

A mutant is a small patch to a copy of ``src``. The quick tests that it names must fail on it, and pass without it. A
mutant that they let pass shows a promise that nothing holds; one whose text is no longer there is out of date. Both
fail the gate: ``make mutants``, or ``python -m tests.mutants --only NAME``.
"""
