"""What lies in deploy/, exercised as far as it can run here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest

from serving import Server, new_collection, new_token, objects, wait_for

ROOT = Path(__file__).parents[2]


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
                behind_a_proxy("https://127.0.0.1:18443", server, token)
            finally:
                proxy.terminate()
                proxy.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert server.stop() == 0


def test_caddy_takes_its_example_and_tells_addresses(tmp_path: Path) -> None:
    """A real Caddy, without the certificate that it would fetch for a name of its own."""
    if shutil.which("caddy") is None:
        pytest.skip("Caddy is not installed")
    store = str(tmp_path / "caddy.db")
    token = new_token(store, "admin")
    options = ["--store", store, "--public-collect", "--allow-host", "reports.example.org", "--address-quota", "2"]
    server = Server(tmp_path, [*options, "--client-header", "X-Real-IP"]).start()
    example = (ROOT / "deploy" / "Caddyfile").read_text()
    replaced = {
        "127.0.0.1:8321": server.url.removeprefix("http://"),
        "reports.example.org {": "http://reports.example.org:18080 {\n\tbind 127.0.0.1",
    }
    for old, new in replaced.items():
        assert old in example
        example = example.replace(old, new)
    config = tmp_path / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + example)
    own = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]
    try:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own) as proxy:
            try:
                behind_a_proxy("http://127.0.0.1:18080", server, token)
            finally:
                proxy.kill()  # told to stop, it would wait for what is open
                proxy.wait(20)
    finally:
        assert server.stop() == 0


def behind_a_proxy(url: str, server: Server, token: str) -> None:
    """Strangers are told apart by their own addresses, whatever they say; the page and streams come through."""
    with httpx.Client(base_url=url, verify=False, headers={"Host": "reports.example.org"}) as here:
        wait_for(lambda: _up(here))
        address = f"/v1/collections/{new_collection(server.client(token))}/reports"
        codes = [
            here.post(address, json=objects(1)[0], headers={"X-Real-IP": f"203.0.113.{n}"}).status_code
            for n in range(4)
        ]
        assert codes == [202, 202, 429, 429]
        same = here.post(address, json=objects(1)[0], headers={"Origin": "https://reports.example.org"})
        assert same.json()["error"]["code"] == "quota_exceeded"  # and not cross_site
        assert here.get("/", headers={"Accept": "text/html"}).text.startswith("<!doctype html>")
        with here.stream("GET", address.replace("/reports", "/stream"), headers=_bearer(token)) as stream:
            assert json.loads(next(stream.iter_lines()))["collection"]["reports"] == 2


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def stages() -> tuple[str, str]:
    """Return the two stages of the Dockerfile, with lines that go on joined."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    build, final = text.replace("\\\n", " ").split("\nFROM ")
    return build, final


def test_the_dockerfile_names_what_is_there() -> None:
    build, final = stages()
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) /source", build, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
