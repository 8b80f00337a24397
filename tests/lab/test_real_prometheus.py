"""A real Prometheus scrapes the lab at speed 1, and kube-prometheus' own expression gives the lab's own truth."""

import shutil
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from rebalancer.lab import Lab
from tests.lab.conftest import Client

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on PATH"),
]

Start = Callable[..., Lab]

UTILISATION = """1 - avg without (cpu) (
  sum without (mode) (rate(node_cpu_seconds_total{job="node-exporter", mode=~"idle|iowait|steal"}[10s])))"""
PODS = 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!="", image!=""}[10s]))'

CONFIGURATION = """\
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: lab
  honor_labels: true
  static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def prometheus(start: Start, tmp_path: Path) -> Iterator[tuple[Lab, Client]]:
    lab = start(speed=1.0)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(target=lab.url.removeprefix("http://")))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield lab, Client(f"http://{address}")
    finally:
        process.terminate()
        process.wait(timeout=20)


def ask(client: Client, query: str, label: str) -> dict[str, float]:
    try:
        body = client(f"/api/v1/query?query={quote(query)}").body
    except (urllib.error.URLError, ConnectionError):
        return {}
    if not isinstance(body, dict):
        return {}
    return {row["metric"][label]: float(row["value"][1]) for row in body["data"]["result"]}


def test_the_expressions_of_kube_prometheus_give_the_truth(prometheus: tuple[Lab, Client]) -> None:
    lab, client = prometheus
    deadline = time.monotonic() + 40
    while min(ask(client, "count_over_time(node_uname_info[10s])", "instance").values(), default=0) < 10:
        assert time.monotonic() < deadline, "Prometheus has no full window of the lab's nodes"
        time.sleep(0.5)
    shares = ask(client, UTILISATION, "instance")
    truth = lab.truth.node_cpu_share()
    addresses = {f"10.0.0.{number + 2}:9100": name for number, name in enumerate("abc")}
    assert {addresses[at]: share for at, share in shares.items()} == pytest.approx(truth, abs=0.01)
    pods = ask(client, PODS, "pod")
    assert pods == pytest.approx({name: cores for (_, name), cores in lab.truth.pod_cpu_cores().items()}, rel=0.02)
