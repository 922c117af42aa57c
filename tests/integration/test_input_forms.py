"""The page of input forms says what becomes of each."""

from __future__ import annotations

import re

import pytest

from input_forms import FORMS, PAGE, Form, outcome


def written() -> dict[str, str]:
    rows = re.findall(r"^\| (.+?) \| (`.+?`) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: became.replace("\\|", "|") for name, _, became in rows}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_becomes_what_the_page_says(form: Form) -> None:
    """Stale? ``python -m tests.input_forms`` makes the page again."""
    assert written()[form.name] == outcome(form)


def test_the_page_has_forty_forms_and_no_other() -> None:
    assert len(FORMS) >= 40
    assert written().keys() == {form.name for form in FORMS}
    assert sum(became.startswith("accepted") for became in written().values()) < len(FORMS) - 10
