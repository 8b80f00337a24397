"""A real Prometheus for tests: history back-filled by promtool, on loopback, gone afterwards.

It scrapes nothing by default. Its series have the shape that kube-prometheus-stack gives them: node_exporter knows
an address but no node name, cAdvisor counts every container and once more the whole pod, kube-state-metrics joins them.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

from tests.real.servers.ports import start, stop

GIB = 2.0**30
SCRAPE_SECONDS = 15.0
_DENSE_SECONDS = 900.0
_SPARSE_SECONDS = 300.0
_MODES = {
    "idle": None,
    "iowait": 0.02,
    "user": 0.7,
    "nice": 0.0,
    "system": 0.2,
    "irq": 0.02,
    "softirq": 0.08,
    "steal": 0.05,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series to write. A counter grows by `rate` a second; a gauge stays at `value`."""

    metric: str
    labels: Mapping[str, str]
    rate: float | None = None
    value: float = 1.0
    ends_before_now: float = 0.0
    """Seconds before now at which its last sample lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer:
    """A running server."""

    url: str
    pid: int
    folder: Path

    def change_rules(self, rules: str) -> None:
        """Put another rule file in place of the one that it was started with."""
        (self.folder / "rules.yaml").write_text(rules)
        os.kill(self.pid, signal.SIGHUP)


def node_exporter(
    *,
    instance: str,
    nodename: str,
    cpus: int,
    busy_cores: float,
    job: str = "node-exporter",
    ends_before_now: float = 0.0,
    extra: Mapping[str, str] | None = None,
) -> list[Series]:
    """One node's counters, with `busy_cores` used of `cpus`; NaN writes counters that are not a number. A quarter of
    its 16 GiB of memory is in use.

    Waiting for disks and stolen time come on top of it, as the use of no pod.
    """
    labels = {"instance": instance, "job": job, "service": f"kps-{job}", "namespace": "monitoring", **(extra or {})}
    out = []
    for cpu in range(cpus):
        busy = busy_cores / cpus
        for mode, share in _MODES.items():
            rate = {"idle": max(0.93 - busy, 0.0), "iowait": 0.02, "steal": 0.05}.get(mode, busy * (share or 0.0))
            out.append(
                Series(
                    metric="node_cpu_seconds_total",
                    labels={**labels, "cpu": str(cpu), "mode": mode},
                    rate=rate if busy == busy else busy,
                    ends_before_now=ends_before_now,
                )
            )
    for metric, amount in (("node_memory_MemTotal_bytes", 16 * GIB), ("node_memory_MemAvailable_bytes", 12 * GIB)):
        out.append(Series(metric=metric, labels=labels, value=amount, ends_before_now=ends_before_now))
    out.append(
        Series(
            metric="node_uname_info",
            labels={**labels, "nodename": nodename, "machine": "x86_64", "sysname": "Linux"},
            ends_before_now=ends_before_now,
        )
    )
    return out


def cadvisor(
    *,
    namespace: str,
    pod: str,
    node: str,
    containers: Mapping[str, float],
    job: str = "kubelet",
    ends_before_now: float = 0.0,
) -> list[Series]:
    """One pod's counters (cores by container), its pause container's and the whole pod's. An empty node = no label.
    Memory is a GiB for each core."""
    labels = {
        "namespace": namespace,
        "pod": pod,
        "job": job,
        "service": f"kps-{job}",
        "metrics_path": "/metrics/cadvisor",
    }
    labels |= {"node": node} if node else {}
    pod_id = f"/kubepods.slice/{namespace}-{pod}"
    rates = [({"container": name, "id": f"{pod_id}/{name}"}, rate) for name, rate in containers.items()]
    rates.append(({"container": "POD", "id": f"{pod_id}/pause"}, 0.001))
    rates.append(({"id": pod_id}, sum(containers.values()) + 0.001))
    counters = [
        Series(
            metric="container_cpu_usage_seconds_total",
            labels={**labels, **extra, "cpu": "total"},
            rate=rate,
            ends_before_now=ends_before_now,
        )
        for extra, rate in rates
    ]
    gauges = [
        Series(
            metric="container_memory_working_set_bytes",
            labels={**labels, **extra},
            value=rate * GIB,
            ends_before_now=ends_before_now,
        )
        for extra, rate in rates
    ]
    return [*counters, *gauges]


def node_pressure(*, instance: str, share: float, job: str = "node-exporter") -> Series:
    """The share of time in which some task of a node waits for CPU."""
    return Series(
        metric="node_pressure_cpu_waiting_seconds_total", labels={"instance": instance, "job": job}, rate=share
    )


def waiting(
    *,
    namespace: str,
    pod: str,
    node: str,
    containers: Mapping[str, tuple[float, float | None]],
    whole: float = 0.0,
    job: str = "kubelet",
) -> list[Series]:
    """One pod's contention: of each container the share of time in which it waits, and the share of its CFS periods in
    which it is throttled (None = it has no CPU limit). `whole`: what cAdvisor says of the pod and its pause container.
    """
    labels = {"namespace": namespace, "pod": pod, "node": node, "job": job, "metrics_path": "/metrics/cadvisor"}
    rates: list[tuple[Mapping[str, str], str, float]] = [
        ({}, "container_pressure_cpu_waiting_seconds_total", whole),
        ({"container": "POD"}, "container_pressure_cpu_waiting_seconds_total", whole),
    ]
    for name, (waits, throttled) in containers.items():
        own = {"container": name, "id": f"/kubepods.slice/{namespace}-{pod}/{name}"}
        rates.append((own, "container_pressure_cpu_waiting_seconds_total", waits))
        if throttled is not None:
            rates.append((own, "container_cpu_cfs_periods_total", 10.0))
            rates.append((own, "container_cpu_cfs_throttled_periods_total", 10.0 * throttled))
    return [Series(metric=metric, labels={**labels, **extra}, rate=rate) for extra, metric, rate in rates]


def kube_state_metrics(*, nodes: Mapping[str, str], pods: Sequence[tuple[str, str, str]] = ()) -> list[Series]:
    """`nodes` = {name: internal address}; `pods` = (namespace, pod, node)."""
    labels = {"job": "kube-state-metrics", "instance": "10.42.0.9:8080"}
    return [
        Series(metric="kube_node_info", labels={**labels, "node": name, "internal_ip": address})
        for name, address in nodes.items()
    ] + [
        Series(metric="kube_pod_info", labels={**labels, "namespace": namespace, "pod": pod, "node": node})
        for namespace, pod, node in pods
    ]


@contextmanager
def prometheus_server(
    series: Sequence[Series],
    *,
    hours: float = 1.0,
    minutes_ahead: float = 10.0,
    rules: str = "",
    web_config: str = "",
    scrape: str = "",
    fill: Callable[[Path], None] | None = None,
    flags: Sequence[str] = (),
    alertmanager: str = "",
    cluster: str = "",
) -> Iterator[PrometheusServer]:
    """Start a server that holds `series`; skips the test where Prometheus is not installed.

    Samples lie 15 s apart in the last 15 minutes, 5 minutes apart before. They run on into the future, so that
    "now" stays covered while tests run; with `rules` (a rule file) they must end now, because Prometheus appends
    nothing before its newest block. `scrape` (host:port) is asked for /metrics every second, its labels kept.
    `fill` may put more blocks into the data folder before the start; `flags` are the command line's.
    Alerts go to `alertmanager` (host:port), with the external label `cluster`.
    """
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        raise SkipTest("needs prometheus and promtool: apt-get install prometheus")
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-prom-"))
    try:
        _backfill(folder, series, hours=hours, ahead=0.0 if rules else minutes_ahead * 60)
        if fill is not None:
            fill(folder / "data")
        labels = f", external_labels: {{cluster: {cluster}}}" if cluster else ""
        config = f"global: {{evaluation_interval: 1s{labels}}}\n"
        if alertmanager:
            config += f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n"
        if scrape:
            config += (
                "scrape_configs:\n"
                "- {job_name: lab, scrape_interval: 1s, scrape_timeout: 1s, honor_labels: true, "
                f"static_configs: [{{targets: ['{scrape}']}}]}}\n"
            )
        if rules:
            (folder / "rules.yaml").write_text(rules)
            config += "rule_files: [rules.yaml]\n"
        (folder / "prometheus.yaml").write_text(config)
        (folder / "web.yaml").write_text(web_config)
        process, port = _start(folder, flags)
        scheme = "https" if "tls_server_config" in web_config else "http"
        try:
            yield PrometheusServer(url=f"{scheme}://127.0.0.1:{port}", pid=process.pid, folder=folder)
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _backfill(folder: Path, series: Sequence[Series], *, hours: float, ahead: float) -> None:
    now = time.time()
    start = now - hours * 3600
    text = folder / "history.om"
    with text.open("w") as out:
        for each in sorted(series, key=lambda one: one.metric):
            labels = ",".join(f'{name}="{value}"' for name, value in each.labels.items())
            last = now - each.ends_before_now if each.ends_before_now else now + ahead
            for at in _times(start, now, last):
                value = each.value if each.rate is None else 1000.0 + each.rate * (at - start)
                out.write(f"{each.metric}{{{labels}}} {value:.6f} {at:.3f}\n".replace(" nan ", " NaN "))
        out.write("# EOF\n")
    data = folder / "data"
    data.mkdir()
    if series:
        done = subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", text, data],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"promtool ended with {done.returncode}: {done.stderr}{done.stdout}")
    text.unlink()


def _times(start: float, now: float, last: float) -> Iterator[float]:
    dense = now - _DENSE_SECONDS
    at = start
    while at < dense:
        yield at
        at += _SPARSE_SECONDS
    at = dense
    while at <= last:
        yield at
        at += SCRAPE_SECONDS


def _start(folder: Path, flags: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    return start(
        lambda port: [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--web.config.file={folder / 'web.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=30d",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            *flags,
        ],
        folder=folder,
        ready=_ready,
    )


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2):
            return True
    except urllib.error.HTTPError as error:
        # 400: it speaks TLS; 401: it wants a password. Either way it is there.
        with error:
            return error.code in (400, 401)
    except OSError:
        return False
