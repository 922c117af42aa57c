"""A bill of materials in CycloneDX 1.5: what an environment holds, under which licence, and what needs what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

# What every new environment holds before anything is installed.
_TOOLS = {"pip", "setuptools", "wheel"}


def bill(site: Path, name: str) -> dict[str, Any]:
    """Return the bill of a distribution and of everything beside it in a folder of installed ones.

    It states no time and no random number, so that the same environment gives the same bill.
    """
    held = {key_of(one.metadata["Name"]): one for one in distributions(path=[str(site)])}
    root = held.pop(key_of(name))
    held = {key: one for key, one in sorted(held.items()) if key not in _TOOLS}
    references = {key: _reference(one) for key, one in held.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": _component(root, "application")},
        "components": [_component(one, "library") for one in held.values()],
        "dependencies": [
            {
                "ref": _reference(one),
                "dependsOn": sorted({references[key] for key in needed(one) if key in references}),
            }
            for one in (root, *held.values())
        ],
    }


def key_of(name: str) -> str:
    """Return the form in which names of distributions are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reference(one: Distribution) -> str:
    return f"pkg:pypi/{key_of(one.metadata['Name'])}@{one.version}"


def _component(one: Distribution, kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": kind, "bom-ref": _reference(one), "name": one.metadata["Name"]}
    fields |= {"version": one.version, "purl": _reference(one)}
    expression = one.metadata["License-Expression"]
    if expression:
        return fields | {"licenses": [{"expression": expression}]}
    prefix = "License :: OSI Approved :: "
    named = [text.removeprefix(prefix) for text in one.metadata.get_all("Classifier") or [] if text.startswith(prefix)]
    return fields | ({"licenses": [{"license": {"name": text}} for text in named]} if named else {})


def needed(one: Distribution, extras: Iterable[str] = ()) -> Iterator[str]:
    """Yield what it needs here, with some of its extras."""
    for text in one.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": name}) for name in ("", *extras)):
            yield key_of(requirement.name)
