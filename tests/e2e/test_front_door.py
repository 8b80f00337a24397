"""The daemon's front door, with the real command."""

import os
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.daemon.serve import web_address
from rebalancer.model.errors import ConfigError
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, delivery, until, warm_lab
from tests.programs.cli import policy_for, rebalancer, write_policy


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", ":0", "example.com:0"])
def test_a_public_address_without_authentication_ends_the_start(listen: str, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, policy_for("http://127.0.0.1:1"))
    env = {"REBALANCER_LISTEN": listen, "REBALANCER_INSECURE_NO_AUTH": "true"}
    result = rebalancer("run", "-f", policy, env=env, cwd=tmp_path)
    assert result.code == 4
    assert f"listen {listen}: without credentials the web API listens on loopback only: set " in result.err
    assert "REBALANCER_BEARER_TOKEN_FILE" in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (Settings(), "127.0.0.1:8080"),
        (Settings(insecure_no_auth=True), "127.0.0.1:8080"),
        (Settings(insecure_no_auth=True, listen="[::1]:1"), "[::1]:1"),
        (Settings(insecure_no_auth=True, listen="localhost:1"), "localhost:1"),
        (Settings(bearer_token_file="/token"), "0.0.0.0:8080"),
        (Settings(basic_auth_file="/basic", insecure_no_auth=True, listen="0.0.0.0:1"), "0.0.0.0:1"),
        (Settings(listen="0.0.0.0:8080"), "0.0.0.0:8080"),  # the chart's default: the web API is closed
    ],
    ids=str,
)
def test_without_authentication_the_web_server_listens_on_loopback(settings: Settings, address: str) -> None:
    assert web_address(settings) == address


def test_an_address_that_is_none_is_one_error_with_and_without_authentication() -> None:
    with pytest.raises(ConfigError, match="expected ADDRESS:PORT"):
        web_address(Settings(insecure_no_auth=True, listen="8080"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with a listener for probes."""
    with warm_lab(warm=1) as lab:
        config = lab.write_kubeconfig(tmp_path / "config")
        env = {"REBALANCER_HEALTH_LISTEN": "127.0.0.1:0"}
        with daemon(tmp_path, alert_policy(lab.prometheus_url), config, env=env) as started:
            yield started


def probe(running: DaemonProcess, path: str) -> tuple[int, str]:
    """(status, body) from the listener for probes."""
    [line] = running.events("started")
    with urllib.request.urlopen(f"{line['health']}{path}", timeout=20) as answer:
        return answer.status, answer.read().decode()


def test_idle_connections_and_a_token_that_hangs_take_no_probe_away(running: DaemonProcess, tmp_path: Path) -> None:
    until(running.leads, running.tail)
    [line] = running.events("started")
    ports = [urlsplit(line[name]).port for name in ("address", "health")]
    with ExitStack() as stack:
        for port in ports:
            for _ in range(300):
                stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
        token = tmp_path / "token"
        kept = token.read_text()
        os.mkfifo(tmp_path / "pipe")
        os.replace(tmp_path / "pipe", token)
        until(lambda: running.post(delivery("warm-1")) == 503, running.tail)
        assert probe(running, "/livez") == (200, "ok\n")
        assert probe(running, "/readyz")[0] == 200
        assert running.get("/livez") == (200, "ok\n")
        (tmp_path / "new").write_text(kept)
        os.replace(tmp_path / "new", token)
        until(lambda: running.post(delivery("warm-1")) == 200, running.tail)
