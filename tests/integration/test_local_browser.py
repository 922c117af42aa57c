"""The JavaScript client where its users are: in a browser, whose reports the Python collector then counts."""

from __future__ import annotations

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpsketch import local

CLIENT = Path(local.__file__).with_name("client.js")
CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the client in a browser: chromium is not installed")

PAGE = """<!doctype html><pre id="out">waiting</pre><script type="module">
import { readSpec, report, toObject } from "./client.js";
const { json, sets } = await (await fetch("./question.json")).json();
const spec = readSpec(json, { maxEpsilon: 20 });
document.getElementById("out").textContent = JSON.stringify(sets.map((items) => toObject(spec, report(spec, items))));
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_browser_reports_what_the_collector_counts(tmp_path: Path) -> None:
    """3,000 people, two thirds of whom hold "tea", at ε = 8: the share within six standard errors (1e-8)."""
    protocol = local.SubsetHashing(epsilon=8.0, max_items=3, key_type="text")
    sets = [["tea", f"x{i}"] if i % 3 else [f"y{i}"] for i in range(3000)]
    shutil.copy(CLIENT, tmp_path / "client.js")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "question.json").write_text(json.dumps({"json": protocol.to_json(), "sets": sets}), encoding="utf-8")
    assert CHROMIUM is not None
    with served(tmp_path) as address:
        done = subprocess.run(
            [
                CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
                "--disable-background-networking", "--disable-component-update",
                f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=60000", "--dump-dom", address,
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[:500]
    reports = json.loads(html.unescape(found.group(1)))
    collector = protocol.collector()
    received = collector.receive(json.dumps(report) for report in reports)
    assert received.accepted == len(sets)
    [share] = collector.estimate(["tea"]).value
    assert abs(share - 2 / 3) < 6 * protocol.variance(2 / 3, len(sets)) ** 0.5
