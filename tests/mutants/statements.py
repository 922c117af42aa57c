"""Mutants of what a release says of itself: its promise, its payment, its number."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_STATEMENTS = "tests/contract/test_statements.py"

STATEMENTS = [
    Mutant(
        "plan-forgets-the-relation",
        "_command",
        'if unit.neighbours != "add_remove":',
        "if False:",
        "tests/cli/test_plan.py",
        "a proposed command protects by another relation than was planned",
    ),
    Mutant(
        "release-without-its-charge",
        "Permit.receipt",
        "not self._for_tests, self.charge)",
        "not self._for_tests, None)",
        "tests/contract/test_statements.py",
        "a release that was paid for does not say so",
    ),
    Mutant(
        "file-without-its-charge",
        "receipt_to_json",
        '"charge": None if receipt.charge is None else receipt.charge.to_json(),',
        '"charge": None,',
        _STATEMENTS,
        "a release's file does not say that it was paid for",
    ),
    Mutant(
        "file-restated",
        "refuse_other_promise",
        "if not isinstance(stated, dict) or _numbers(stated) != _numbers(computed):",
        "if False:",
        "tests/contract/test_core.py",
        "a file that is read promises half of what was paid",
    ),
    Mutant(
        "number-at-one-confidence",
        "NumberRelease._statement",
        "return statement(self.subject, self.value, self.interval(confidence), confidence, self.counts)",
        "return statement(self.subject, self.value, self.interval(), confidence, self.counts)",
        _STATEMENTS,
        "a number has one interval, whatever confidence is asked",
    ),
    Mutant(
        "number-of-two-low-ends",
        "NumberRelease.high",
        "return self.interval()[1]",
        "return self.interval()[0]",
        _STATEMENTS,
        "the upper end of a number is its lower one",
    ),
    Mutant(
        "number-pictured-with-another-promise",
        "Release.title",
        "ε = {self.guarantee.epsilon:.4g}, δ = {self.guarantee.delta:.3g}",
        "ε = {self.guarantee.delta:.4g}, δ = {self.guarantee.epsilon:.3g}",
        _STATEMENTS,
        "the picture of a number has δ in place of ε",
    ),
    Mutant(
        "ranges-without-half-a-step",
        "PrivateRanges._combined",
        "widening(reach, excess) + 0.5 * step / reach",
        "widening(reach, excess)",
        "tests/statistical/test_exact_coverage.py -k hardly_more",
        "intervals are too short where noise is hardly more than none",
    ),
    Mutant(
        "spark-errors-quoted",
        "_merged",
        "return run(lambda: merge_parts(ordered, disjoint_users=disjoint_users))",
        "return merge_parts(ordered, disjoint_users=disjoint_users)",
        "tests/unit/test_spark_driver.py",
        "an error while parts are merged on the driver is told with its text, which may quote a record",
    ),
]
