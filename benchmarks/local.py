"""The local model on one core, beside pure-ldp 1.2: reports made, reports aggregated and keys estimated.

pure-ldp's interpreter is ``$DPSKETCH_PURELDP_PYTHON``, by default ``.venv-pureldp/bin/python`` at the root of the
project. Both sides randomise one item of a domain of 1,024 a person at ε = 1, by optimal local hashing and by Apple's
count-mean sketch (64 rows of 256), and then estimate every key. pure-ldp takes one report a call, so it gets fewer of
them; its rates do not depend on how many there are. The errors of both, at one number of people, are compared too: same
protocol, same error.

The last rows set subset hashing, the recommended protocol for sets, against what was asked of it: a million reports of
20 items in 5 s, and a million reports aggregated and 10⁵ keys estimated in 10 s.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.peers import run_peer
from dpsketch import local

PEOPLE, PEER_PEOPLE = 1_000_000, 4_000
ERROR_RUNS = 10  # of ours; a single one of theirs already takes seconds
DOMAIN = 1_024
EPSILON = 1.0
SKETCH = {"rows": 64, "width": 256}
SET_ITEMS, SET_KEYS, SET_CAP = 20, 100_000, 26

PEER = f"""
import json, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from pure_ldp.frequency_oracles.apple_cms import CMSClient, CMSServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer

people, domain = {PEER_PEOPLE}, {DOMAIN}
items = np.random.default_rng(1).integers(0, domain // 16, people).tolist()
true = np.bincount(items, minlength=domain) / people

def measure(client, server):
    start = time.perf_counter()
    reports = [client.privatise(item) for item in items]
    made = time.perf_counter()
    for report in reports:
        server.aggregate(report)
    aggregated = time.perf_counter()
    values = np.array([server.estimate(key, suppress_warnings=True) for key in range(domain)]) / people
    estimated = time.perf_counter()
    return {{"made": people / (made - start), "counted": people / (estimated - made),
             "error": float(np.mean((values - true) ** 2) * people)}}

mapper = lambda item: int(item)
olh = measure(LHClient({EPSILON}, domain, use_olh=True, index_mapper=mapper),
              LHServer({EPSILON}, domain, use_olh=True, index_mapper=mapper))
server = CMSServer({EPSILON}, {SKETCH["rows"]}, {SKETCH["width"]})
cms = measure(CMSClient({EPSILON}, server.get_hash_funcs(), {SKETCH["width"]}), server)
print(json.dumps({{"olh": olh, "cms": cms}}))
"""


def pure_ldp() -> Any:
    """Run the peer's side with its own interpreter."""
    return run_peer(PEER, "pureldp")


def measure(protocol: Any, held: Any, keys: Any) -> tuple[float, float, Any]:
    """Return the seconds for making all reports, and for adding them and estimating the keys; and the estimates."""
    start = time.perf_counter()
    reports = protocol.report(held)
    made = time.perf_counter()
    values = protocol.collector().add(reports).estimate(keys).value
    return made - start, time.perf_counter() - made, values


def warmed(protocol: Any, held: Any, few: Any, keys: Any) -> tuple[float, float]:
    """Compile on a few people first; then take the better of two runs."""
    measure(protocol, few, keys[:10])
    first, second = (measure(protocol, held, keys) for _ in range(2))
    return min(first[0], second[0]), min(first[1], second[1])


def run() -> list[dict[str, Any]]:
    """Measure both sides and return one row a figure."""
    rows: list[dict[str, Any]] = []

    def add(name: str, ours: float, theirs: float, unit: str, *, less_is_better: bool = False) -> None:
        ratio = theirs / ours if less_is_better else ours / theirs
        goal = {"reach": 100} if name.startswith("optimal local hashing: aggregated") else {}
        rows.append({"name": name, "ours": ours, "theirs": theirs, "ratio": ratio, "unit": unit} | goal)

    peer = pure_ldp()
    items = np.random.default_rng(1).integers(0, DOMAIN // 16, PEOPLE)
    fewer = np.random.default_rng(1).integers(0, DOMAIN // 16, PEER_PEOPLE)
    true = np.bincount(fewer, minlength=DOMAIN) / PEER_PEOPLE
    keys = np.arange(DOMAIN)
    for short, words, protocol in (
        ("olh", "optimal local hashing", local.OptimalLocalHashing(EPSILON, seeds=65_536)),
        ("cms", "count-mean sketch", local.CountMeanSketch(EPSILON, **SKETCH)),
    ):
        making, counting = warmed(protocol, items, fewer, keys)
        add(f"{words}: reports made", PEOPLE / making, peer[short]["made"], "reports/s")
        add(f"{words}: aggregated, {DOMAIN} keys estimated", PEOPLE / counting, peer[short]["counted"], "reports/s")
        errors = [np.mean((measure(protocol, fewer, keys)[2] - true) ** 2) for _ in range(ERROR_RUNS)]
        error = float(np.mean(errors)) * PEER_PEOPLE
        add(f"{words}: n × mean squared error", error, peer[short]["error"], "", less_is_better=True)

    held = np.random.default_rng(2).integers(0, SET_KEYS, SET_ITEMS * PEOPLE)
    offsets = np.arange(0, len(held) + 1, SET_ITEMS)
    for epsilon in (1.0, 8.0):
        subset = local.SubsetHashing(epsilon, max_items=SET_CAP)
        few = (offsets[:101], held[: offsets[100]])
        making, counting = warmed(subset, (offsets, held), few, np.arange(SET_KEYS))
        add(f"subset hashing ε={epsilon:g}: 10⁶ reports of 20 items, of 5 s", making, 5.0, "s", less_is_better=True)
        add(f"subset hashing ε={epsilon:g}: counted, 10⁵ keys, of 10 s", counting, 10.0, "s", less_is_better=True)
    return rows
