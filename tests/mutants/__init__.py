"""The library broken on purpose, one line at a time, and the tests that must notice.

A mutant is a small change to a copy of ``src``. At least one quick test must fail on it. A mutant that survives shows a
promise that no test holds. ``make mutants`` tries all of them.
"""
