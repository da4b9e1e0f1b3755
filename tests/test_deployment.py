"""The files in deploy/: each is run by the program that it is for, where that is installed."""

import http.client
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")

from test_server import Server, make_model

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
HOST = "labels.example.org"
CLIENT = ("127.0.0.2", 0)  # another address than that of the proxy, which Linux has, too


def program(name):
    path = shutil.which(name, path=PATH)
    if path is None:
        pytest.skip(f"deploy/ is not tested with {name}, which is not installed: apt-get install {name}")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("deploy") / "catalogue.bonsai"
    return path, make_model(path).texts_test


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_the_page_shows_the_files():
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for path in DEPLOY.iterdir():
        assert f"\n{path.read_text(encoding='utf-8')}```\n" in page, f"docs/deployment.md: {path.name}"


# --- proxies ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [
        program("openssl"),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


class Secure(http.client.HTTPSConnection):
    """A connection to a port of this machine under the name of the certificate."""

    def __init__(self, port, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        super().__init__("127.0.0.1", port, timeout=30, context=context)

    def connect(self):
        plain = socket.create_connection((self.host, self.port), self.timeout, CLIENT)
        self.sock = self._context.wrap_socket(plain, server_hostname=HOST)

    def post(self, path, value):
        body = json.dumps(value)
        self.request("POST", path, body, {"content-type": "application/json", "host": HOST})
        response = self.getresponse()
        return response.status, response.read()


def wait_for(port, process):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("it does not listen")


def check_proxy(server, port, certificate, texts):
    """Check TLS, a body of some megabytes, keep-alive, and the address of the client."""
    connection = Secure(port, certificate)
    long = 300 * [10_000 * "a "]  # 6 MB
    for body, n in (({"text": texts[0]}, 1), ({"texts": long}, 300), ({"texts": texts[:20]}, 20)):
        status, answer = connection.post("/predict", body)
        assert status == 200 and len(json.loads(answer)["results"]) == n
    connection.close()
    records = [server.until("request") for _ in range(3)]
    assert len({record["pid"] for record in records}) == 1  # by one connection to one of two workers
    assert {record["client"] for record in records} == {CLIENT[0]}


def test_nginx_passes_requests_on(model, certificate, tmp_path):
    nginx = program("nginx")
    server = Server(model[0], "--workers", 2)
    port, plain = free_port(), free_port()
    site = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ("listen [::]:80;", ""),
        ("listen [::]:443 ssl http2;", ""),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        (f"/etc/letsencrypt/live/{HOST}/fullchain.pem", str(certificate[1])),
        (f"/etc/letsencrypt/live/{HOST}/privkey.pem", str(certificate[0])),
    ):
        assert old in site
        site = site.replace(old, new)
    (tmp_path / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""  # the user that may write to these folders
    (tmp_path / "nginx.conf").write_text(
        f"{user} daemon off; pid {tmp_path}/pid; error_log stderr; events {{}} "
        f"http {{ access_log off; {folders} include {tmp_path}/site.conf; }}"
    )
    subprocess.run([nginx, "-t", "-c", tmp_path / "nginx.conf"], check=True, capture_output=True)
    process = subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf"], stderr=subprocess.PIPE)
    try:
        wait_for(port, process)
        check_proxy(server, port, certificate[1], model[1])
        connection = Secure(port, certificate[1])
        connection.putrequest("POST", "/predict", skip_host=True)
        for name, value in (
            ("host", HOST),
            ("content-length", "12000000"),
            ("content-type", "application/json"),
        ):
            connection.putheader(name, value)
        connection.endheaders(b"{")
        assert connection.getresponse().status == 413
        connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", plain, timeout=10)
        connection.request("GET", "/models", headers={"host": HOST})
        response = connection.getresponse()
        assert (response.status, response.getheader("location")) == (301, f"https://{HOST}/models")
        connection.close()
    finally:
        process.terminate()
        process.wait(20)
        assert server.stop() == 0


def test_caddy_passes_requests_on(model, certificate, tmp_path):
    caddy = program("caddy")
    server = Server(model[0], "--workers", 2)
    port = free_port()
    site = (DEPLOY / "Caddyfile").read_text()
    assert f"{HOST} {{" in site and "127.0.0.1:8000" in site
    site = site.replace(f"{HOST} {{", f"{HOST}:{port} {{\n\ttls {certificate[1]} {certificate[0]}")
    site = site.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    (tmp_path / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}")
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [caddy, "run", "--config", tmp_path / "Caddyfile"],
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        wait_for(port, process)
        check_proxy(server, port, certificate[1], model[1])
    finally:
        process.kill()  # it would wait for clients
        process.wait(20)
        assert server.stop() == 0


# --- the unit and the image ---


def setting(unit, name):
    (value,) = re.findall(rf"^{name}=(.*)$", unit, re.M)
    return value


def test_systemd_accepts_the_unit(tmp_path):
    analyze = program("systemd-analyze")
    unit = (DEPLOY / "bonsai.service").read_text()
    bonsai = Path(sys.executable).with_name("bonsai")
    (tmp_path / "bonsai.service").write_text(unit.replace("/opt/bonsai/bin/bonsai", str(bonsai)))
    run = subprocess.run(
        [analyze, "verify", "--man=no", tmp_path / "bonsai.service"], capture_output=True, text=True
    )
    about_it = [line for line in run.stderr.splitlines() if "bonsai" in line]
    assert not about_it, about_it


def test_the_command_of_the_unit_serves_and_reloads(model, tmp_path):
    unit = (DEPLOY / "bonsai.service").read_text()
    (tmp_path / "key").write_text("secret")
    command = setting(unit, "ExecStart").replace("${CREDENTIALS_DIRECTORY}", str(tmp_path))
    program, verb, *arguments, path = shlex.split(command)
    assert program == "/opt/bonsai/bin/bonsai" and verb == "serve" and path.endswith("/catalogue.bonsai")
    arguments.remove("--quiet")  # which hides the address that the test reads
    server = Server(*arguments, model[0])
    try:
        assert server.ask("GET", "/models")[0] == 401
        assert server.get("/models", **{"x-api-key": "secret"})["models"][0]["name"] == "catalogue"
        assert setting(unit, "ExecReload") == "/bin/kill -HUP $MAINPID"
        server.process.send_signal(1)
        server.until("reloaded")
    finally:
        assert server.stop() == 0
    assert int(setting(unit, "TimeoutStopSec")) > 30


def test_the_image_runs_commands_that_exist(model):
    """The image is not built here; its command and its health check are run."""
    text = (DEPLOY / "Containerfile").read_text()
    entry, health = (
        json.loads(re.search(rf"^{name} (\[.*\])$", text, re.M)[1])
        for name in ("ENTRYPOINT", "HEALTHCHECK CMD")
    )
    assert entry[:2] == ["bonsai", "serve"] and entry[-2:] == ["--port", "8000"]
    server = Server(*entry[2:-2], model[0], first="no API key")
    try:
        server.until("serving")
        check = [part.replace(":8000", f":{server.port}") for part in health[1:]]
        assert subprocess.run([sys.executable, *check]).returncode == 0
    finally:
        assert server.stop() == 0
    assert subprocess.run([sys.executable, *check], capture_output=True).returncode != 0
    assert "'/source[serve]'" in text and "[serve]'" in text.rpartition("pip install")[2]
