"""A real Alertmanager for tests: one route to one webhook, on loopback, gone afterwards."""

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerServer:
    """A running server."""

    address: str
    """host:port, as Prometheus is told it."""


@contextmanager
def alertmanager_server(webhook: str, *, token_file: Path) -> Iterator[AlertmanagerServer]:
    """Start one that posts every alert to `webhook`, with the token that the file holds; it is read for each post.

    Groups are sent at once and every second again when they change. Skips the test where it is not installed.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("needs Alertmanager: apt-get install prometheus-alertmanager")
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-am-"))
    try:
        (folder / "alertmanager.yml").write_text(
            "route: {receiver: rebalancer, group_by: [alertname, cluster], group_wait: 0s, group_interval: 1s, "
            "repeat_interval: 5s}\n"
            "receivers:\n"
            "- name: rebalancer\n"
            "  webhook_configs:\n"
            f"  - url: {webhook}\n"
            "    send_resolved: true\n"
            "    max_alerts: 0\n"
            f"    http_config: {{authorization: {{credentials_file: {token_file}}}}}\n"
        )
        process, address = _start(program, folder)
        try:
            yield AlertmanagerServer(address=address)
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The process and its address. The port is free when chosen and may be taken when used, so a few are tried."""
    log = folder / "log"
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                    "--cluster.listen-address=",
                    "--log.level=warn",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if _ready(process, address):
            return process, address
        process.kill()
        process.wait()
    raise RuntimeError(f"Alertmanager doesn't start: {log.read_text()}")


def _ready(process: subprocess.Popen[bytes], address: str) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=2):
                return True
        except OSError:
            time.sleep(0.05)
    return False
