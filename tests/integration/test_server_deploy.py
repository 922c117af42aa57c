"""What lies in deploy/, exercised as far as it can run here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import Server, dpsketch, new_collection, new_token, objects

ROOT = Path(__file__).parents[2]


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_the_systemd_unit_is_well_formed(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = (ROOT / "deploy" / "dpsketch.service").read_text()
    path = tmp_path / "dpsketch.service"
    path.write_text(unit.replace("/opt/dpsketch/bin/dpsketch", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "dpsketch" in line and "postgresql" not in line]
    assert (done.returncode, ours) == (0, [])


def test_nginx_takes_its_example_and_tells_addresses(tmp_path: Path) -> None:
    """A real nginx before the real service: the caller's own X-Real-IP is replaced, and the page is reached by name."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    folder = Path(tempfile.mkdtemp(prefix="dpsketch-nginx-", dir="/tmp"))
    folder.chmod(0o755)
    store = str(tmp_path / "nginx.db")
    token = new_token(store, "admin")
    options = ["--store", store, "--public-collect", "--allow-host", "reports.example.org", "--address-quota", "2"]
    server = Server(tmp_path, [*options, "--client-header", "X-Real-IP"]).start()
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=reports.example.org"]
    made = [*certificate, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(made, check=True, capture_output=True)
    example = (ROOT / "deploy" / "nginx.conf").read_text()
    replaced = {
        "127.0.0.1:8321": server.url.removeprefix("http://"), "listen 443 ssl": "listen 127.0.0.1:18443 ssl",
        "listen [::]:443 ssl;": "", "/etc/ssl/certs/reports.example.org.pem": f"{folder}/cert.pem",
        "/etc/ssl/private/reports.example.org.key": f"{folder}/key.pem", "/var/log/nginx/dpsketch.log": f"{folder}/log",
    }  # fmt: skip
    for old, new in replaced.items():
        assert old in example
        example = example.replace(old, new)
    config = folder / "nginx.conf"
    config.write_text(f"pid {folder}/pid;\nerror_log {folder}/errors;\nevents {{}}\nhttp {{\n{example}\n}}\n")
    try:
        command = ["nginx", "-p", str(folder), "-c", str(config)]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        with subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL) as proxy:
            try:
                here = httpx.Client(
                    base_url="https://127.0.0.1:18443", verify=False, headers={"Host": "reports.example.org"}
                )
                wait_for(lambda: _up(here))
                identifier = new_collection(server.client(token))
                address = f"/v1/collections/{identifier}/reports"
                codes = [
                    here.post(address, json=objects(1)[0], headers={"X-Real-IP": f"203.0.113.{n}"}).status_code
                    for n in range(4)
                ]
                assert codes == [202, 202, 429, 429]
                same = here.post(address, json=objects(1)[0], headers={"Origin": "https://reports.example.org"})
                assert same.json()["error"]["code"] == "quota_exceeded"  # and not cross_site
                assert here.get("/", headers={"Accept": "text/html"}).text.startswith("<!doctype html>")
                here.close()
            finally:
                proxy.terminate()
                proxy.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert server.stop() == 0


def _up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def test_the_dockerfile_runs_without_root_and_names_what_is_there() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) /source", text, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
    [entry] = re.findall(r"^ENTRYPOINT (.+)$", final, re.MULTILINE)
    options = dpsketch("serve", "--help")
    assert all(word in options for word in json.loads(entry) if word.startswith("--"))
