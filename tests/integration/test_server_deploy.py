"""What lies in deploy/, exercised as far as it can run here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from serving import Server, new_collection, objects, wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    options = ["--public-collect", "--allow-host", "reports.example.org", "--address-quota", "2"]
    return serve(*options, "--client-header", "X-Real-IP")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder into which the proxy's own user may look."""
    made = Path(tempfile.mkdtemp(prefix="dpsketch-proxy-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def example(name: str, **replaced: str) -> str:
    """What lies in deploy/, with other addresses and files; each of them is in it."""
    text = (ROOT / "deploy" / name).read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_nginx_takes_its_example_and_tells_addresses(folder: Path, server: Server, free_port: int) -> None:
    """A real nginx before the real service: the caller's own X-Real-IP is replaced, and the page is reached by name."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=reports.example.org"]
    made = [*certificate, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(made, check=True, capture_output=True)
    text = example("nginx.conf", **{
        "127.0.0.1:8321": server.url.removeprefix("http://"), "listen 443 ssl": f"listen 127.0.0.1:{free_port} ssl",
        "listen [::]:443 ssl;": "", "/etc/ssl/certs/reports.example.org.pem": f"{folder}/cert.pem",
        "/etc/ssl/private/reports.example.org.key": f"{folder}/key.pem", "/var/log/nginx/dpsketch.log": f"{folder}/log",
    })  # fmt: skip
    config = folder / "nginx.conf"
    config.write_text(f"pid {folder}/pid;\nerror_log {folder}/errors;\nevents {{}}\nhttp {{\n{text}\n}}\n")
    command = ["nginx", "-p", str(folder), "-c", str(config)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    behind_a_proxy(f"https://127.0.0.1:{free_port}", server, [*command, "-g", "daemon off;"])


def test_caddy_takes_its_example_and_tells_addresses(folder: Path, server: Server, free_port: int) -> None:
    """A real Caddy, without the certificate that it would fetch for a name of its own."""
    if shutil.which("caddy") is None:
        pytest.skip("Caddy is not installed")
    text = example("Caddyfile", **{
        "127.0.0.1:8321": server.url.removeprefix("http://"),
        "reports.example.org {": f"http://reports.example.org:{free_port} {{\n\tbind 127.0.0.1",
    })  # fmt: skip
    config = folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + text)
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]
    behind_a_proxy(f"http://127.0.0.1:{free_port}", server, command, HOME=str(folder))


def behind_a_proxy(url: str, server: Server, command: list[str], **environment: str) -> None:
    """Strangers are told apart by their own addresses, whatever they say; the page and streams come through."""
    own, admin = {**os.environ, **environment}, server.client(server.environment["token"])
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own) as proxy,
        httpx.Client(base_url=url, verify=False, headers={"Host": "reports.example.org"}) as here,
    ):
        try:
            wait_for(lambda: _up(here))
            address = f"/v1/collections/{new_collection(admin)}/reports"
            codes = [
                here.post(address, json=objects(1)[0], headers={"X-Real-IP": f"203.0.113.{n}"}).status_code
                for n in range(4)
            ]
            assert codes == [202, 202, 429, 429]
            same = here.post(address, json=objects(1)[0], headers={"Origin": "https://reports.example.org"})
            assert same.json()["error"]["code"] == "quota_exceeded"  # and not cross_site
            assert here.get("/", headers={"Accept": "text/html"}).text.startswith("<!doctype html>")
            with here.stream("GET", address.replace("/reports", "/stream"), headers=admin.headers) as stream:
                assert json.loads(next(stream.iter_lines()))["collection"]["reports"] == 2
        finally:
            proxy.kill()  # told to stop, it would wait for what is open


def _up(client: httpx.Client) -> bool:
    with suppress(httpx.HTTPError):
        return client.get("/health").status_code == 200
    return False


def test_the_dockerfile_names_what_is_there() -> None:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
    build, final = text.replace("\\\n", " ").split("\nFROM ")
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) /source", build, re.MULTILINE)
    assert copied
    assert [name for name in " ".join(copied).split() if not (ROOT / name).exists()] == []
