"""A real Alertmanager for tests: one route to one webhook, on loopback, gone afterwards."""

import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

from tests.real.servers.ports import start, stop

PROGRAMS = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerServer:
    """A running server."""

    address: str
    """host:port, as Prometheus gets it."""


@contextmanager
def alertmanager_server(webhook: str, *, token_file: Path) -> Iterator[AlertmanagerServer]:
    """Start one that posts every alert to `webhook`, with the token that the file holds; it is read for each post.

    Groups are sent at once and every second again when they change. Skips the test where it is not installed.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise SkipTest("needs Alertmanager: apt-get install prometheus-alertmanager")
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
        process, port = start(
            lambda port: [
                program,
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ],
            folder=folder,
            ready=_ready,
        )
        try:
            yield AlertmanagerServer(address=f"127.0.0.1:{port}")
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2):
            return True
    except OSError:
        return False
