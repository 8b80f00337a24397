"""`/metrics`: what a real Prometheus can scrape, as text. Set `honor_labels: true`: one target speaks for all nodes.

Counters follow the pods, with throttling, and never go down. They are brought forward at each scrape.
"""

import threading
from collections.abc import Iterator, Mapping

import numpy as np

from rebalancer.lab.clock import LabClock
from rebalancer.lab.faults import Switchboard, names_node
from rebalancer.lab.history import Columns
from rebalancer.lab.series import CONTAINER_COUNTER, MODES, NODE_COUNTER, cores_of, node_labels
from rebalancer.lab.usage import UsageModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STEP_SECONDS = 5.0
_MOST_STEPS = 4000
_UP_BEFORE_SECONDS = 30 * 86400.0


class Counters:
    """CPU seconds of every node and pod since it came up. Thread-safe."""

    def __init__(self, *, usage: UsageModel, clock: LabClock) -> None:
        self._usage = usage
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock.started_at
        self._pods: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._up: dict[str, float] = {}

    def advance(self) -> tuple[Columns, float, dict[str, float], dict[str, float], dict[str, float]]:
        """Bring everything up to now: (history, now, pod uid -> seconds, node -> busy seconds, node -> all)."""
        with self._lock:
            now = self._clock.now()
            span = now - self._last
            steps = int(np.clip(np.ceil(span / _STEP_SECONDS), 1, _MOST_STEPS))
            middles = self._last + span * (np.arange(steps) + 0.5) / steps
            figures = self._usage.at(middles)
            columns = figures.columns
            for row, machine in enumerate(columns.machines):
                if machine.name not in self._up:
                    before = _UP_BEFORE_SECONDS if machine.start == -np.inf else 0.0
                    self._up[machine.name] = before * machine.cores
                    self._busy[machine.name] = before * float(figures.nodes[row, 0])
                self._up[machine.name] += machine.cores * float(figures.up[row].sum()) * span / steps
                self._busy[machine.name] += float(figures.nodes[row].sum()) * span / steps
            for row, index in enumerate(figures.rows):
                stay = columns.stays[index]
                if stay.uid not in self._pods:
                    before = _UP_BEFORE_SECONDS / 15 if stay.start == -np.inf else 0.0
                    self._pods[stay.uid] = before * float(figures.pods[row, 0])
                self._pods[stay.uid] += float(figures.pods[row].sum()) * span / steps
            self._last = now
            return columns, now, dict(self._pods), dict(self._busy), dict(self._up)


def text(counters: Counters, faults: Switchboard) -> str:
    """The whole page. Missing nodes have no series, nodes with the fault `nan` show NaN."""
    columns, now, pods, busy, up = counters.advance()
    state = faults.state
    lines: list[str] = []
    machines = [
        machine
        for machine in columns.machines
        if machine.start <= now < machine.end and not names_node(state.missing, machine.name)
    ]
    shown = {machine.name: machine.address for machine in machines}
    lines += _head(NODE_COUNTER, "counter", "Seconds the CPUs spent in each mode.")
    for machine in machines:
        count = cores_of(machine.cores)
        idle = max(0.0, up[machine.name] - busy[machine.name])
        for mode, (of_busy, of_idle) in MODES.items():
            value = (of_busy * busy[machine.name] + of_idle * idle) / count
            value = float("nan") if names_node(state.nan, machine.name) else value
            for cpu in range(count):
                lines.append(
                    _line(NODE_COUNTER, {**node_labels(machine.address), "cpu": str(cpu), "mode": mode}, value)
                )
    lines += _head(CONTAINER_COUNTER, "counter", "Cumulative CPU time consumed, in core-seconds.")
    running = [stay for stay in columns.stays if stay.start <= now < stay.end and stay.node in shown]
    for stay in running:
        value = pods.get(stay.uid, 0.0)
        common = {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node, "cpu": "total", "job": "kubelet"}
        common["instance"] = f"{shown[stay.node]}:10250"
        lines.append(_line(CONTAINER_COUNTER, common, value))
        for name, image, share in stay.containers:
            lines.append(_line(CONTAINER_COUNTER, {**common, "container": name, "image": image}, value * share))
    lines += _head("machine_cpu_cores", "gauge", "Number of logical CPU cores.")
    for machine in machines:
        labels = {"node": machine.name, "instance": f"{machine.address}:10250", "job": "kubelet"}
        lines.append(_line("machine_cpu_cores", labels, machine.cores))
    lines += _head("node_uname_info", "gauge", "Labeled system information.")
    for machine in machines:
        lines.append(_line("node_uname_info", {**node_labels(machine.address), "nodename": machine.name}, 1.0))
    lines += _head("kube_node_info", "gauge", "Information about a cluster node.")
    for machine in machines:
        labels = {"node": machine.name, "internal_ip": machine.address, "job": "kube-state-metrics"}
        lines.append(_line("kube_node_info", labels, 1.0))
    lines += _head("kube_pod_info", "gauge", "Information about pod.")
    for stay in running:
        labels = {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node, "uid": stay.uid}
        lines.append(_line("kube_pod_info", {**labels, "job": "kube-state-metrics"}, 1.0))
    return "\n".join(lines) + "\n"


def _head(name: str, type_: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {type_}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
    return f"{name}{{{pairs}}} {'NaN' if np.isnan(value) else repr(value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
