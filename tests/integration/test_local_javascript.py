"""The JavaScript client against the Python collector: same bits from the same words, same law from the system's."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import local
from dpsketch.hashing import fingerprint
from dpsketch.local.protocol import read_people

CLIENT = Path(local.__file__).with_name("client.js")
DRIVER = Path(__file__).with_name("local_client_driver.mjs")
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "local.json").read_text(encoding="utf-8"))
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="the JavaScript client: node is not installed")


def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put questions to the client in one process."""
    assert NODE is not None
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [NODE, str(DRIVER), str(CLIENT)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers_to(requests: list[dict[str, Any]]) -> list[Any]:
    return [each["answer"] for _, each in zip(requests, ask(requests), strict=True)]


def test_the_published_vectors() -> None:
    found = answers_to([{"ask": "vector", **each} for each in VECTORS["reports"]])
    assert found == [{name: each[name] for name in ("bucket", "bytes", "object")} for each in VECTORS["reports"]]


def test_odds_and_fingerprints() -> None:
    odds = answers_to([{"ask": "odds", "epsilon": each["epsilon"]} for each in VECTORS["odds"]])
    assert odds == [each["odds_times_2_to_48"] for each in VECTORS["odds"]]
    texts = ["", "a", "ü", "🦉" * 20, *("k" * n for n in range(70))]
    prints = answers_to([{"ask": "fingerprint", "item": text} for text in texts])
    assert [int(print_) for print_ in prints] == fingerprint(texts).fingerprints.tolist()
    integers = [0, -1, 7, 2**64 - 1, -(2**63)]
    prints = answers_to([{"ask": "fingerprint", "bigint": str(number)} for number in integers])
    assert [int(print_) for print_ in prints] == fingerprint(integers).fingerprints.tolist()
    # What Python refuses is refused, and a text in place of a list is not taken for the list of its letters.
    spec = local.SubsetHashing(1.0, 3, key_type="text").to_json()
    wrong: list[dict[str, Any]] = [{"ask": "fingerprint", "item": one} for one in (1.5, None, True, 2**60, [], {})]
    wrong += [{"ask": "many", "spec": spec, "sets": [items]} for items in ([1], "tea", None, 7, {"a": 1})]
    assert all("error" in answer for answer in ask(wrong))


def test_a_draw_that_would_be_biased_is_drawn_again() -> None:
    spec = local.SubsetHashing(1.0, 2, width=8, seeds=3).to_json()
    # All ones are refused for a hash function among three, decide for an empty bucket, and are refused among seven.
    script = [0xFF, 0x07, 0xFF, 0xFF, 0x09, 0x07, 0x01]
    [answer] = answers_to([{"ask": "scripted", "spec": spec, "items": ["tea"], "script": script}])
    assert answer["calls"] == len(script)
    word = int.from_bytes(b"\x07" * 8, "little")
    assert answer["made"]["seed"] == word % 3
    assert answer["made"]["id"] == "01" * 16
    hashing = local.SubsetHashing(1.0, 2, width=8, seeds=3)
    words = np.array([[2**64 - 1, word, 0]], np.uint64)
    [bucket] = hashing.decide(read_people([["tea"]]), np.array([word % 3], np.uint32), words)
    assert answer["made"]["bucket"] == bucket


def test_a_spec_that_is_senseless_or_forged_or_asks_for_more_than_was_agreed_is_refused() -> None:
    """A spec is what its fingerprint names; a promise of the collector's own, beside it, is none."""
    good = local.SubsetHashing(8.0, 3).to_json()
    senseless: list[dict[str, Any]] = [
        {"protocol": "sampled-bit"}, {"epsilon": 0}, {"epsilon": 21}, {"epsilon": "1"}, {"max_items": 0}, {"width": 3},
        {"seeds": 70_000}, {"seed": 2**53}, {"key_type": "float"}, {"fingerprint": "xyz"},
        {"guarantee": {"epsilon": 0.01}}, {"spent": 0}, {"Epsilon": 0.01},
    ]  # fmt: skip
    others = (local.PrivSketchAsPublished(0.01), local.MultiPCMS(1.0), local.PadAndSample(1.0, length=3))
    specs = [{**good, **change} for change in senseless] + [other.to_json() for other in others]
    renamed = [{"epsilon": 0.5}, {"max_items": 4}, {"seed": 2}, {"key_type": "text"}, {"fingerprint": "0" * 16}]
    for words, changed in (("not the spec", specs), ("fingerprint", [{**good, **change} for change in renamed])):
        answers = ask([{"ask": "readSpec", "spec": spec, "maxEpsilon": 20} for spec in changed])
        assert all(words in answer.get("error", "") for answer in answers)
    for most in ({"maxEpsilon": 7.9}, {}):
        (answer,) = ask([{"ask": "readSpec", "spec": good, **most}])
        assert "agreed" in answer["error"]


@pytest.mark.statistical
def test_reports_drawn_in_javascript_have_the_law_that_the_collector_assumes() -> None:
    """6,000 reports; estimates within 6.5 predicted deviations for 4 keys: false alarm below 4e-10.

    The twin: estimated as if they were of another ε, they are not.
    """
    protocol = local.SubsetHashing(2.0, max_items=2, seeds=512)
    sets = ([["tea", "milk"]] * 3 + [["tea"], [], ["a", "b", "c", "d"]]) * 1000
    [messages] = answers_to([{"ask": "many", "spec": protocol.to_json(), "sets": sets}])
    collector = protocol.collector()
    assert collector.receive(bytes.fromhex(message) for message in messages) == local.Received(6000, 0, 0, 0)
    found = collector.estimate(["tea", "milk", "a", "absent"])
    true = np.array([4 / 6, 3 / 6, 1 / 12, 0.0])
    deviations = np.sqrt([protocol.variance(share, 6000) for share in true])
    assert (np.abs(found.value - true) < 6.5 * deviations).all()

    other = local.SubsetHashing(1.5, max_items=2, seeds=512, width=protocol.width)
    retold = other.collector()
    retold.receive(other.form.head + bytes.fromhex(message)[9:] for message in messages)
    twin = retold.estimate(["tea", "milk"])
    assert (np.abs(twin.value - true[:2]) > 6.5 * deviations[:2]).all()
