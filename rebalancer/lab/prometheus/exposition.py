"""`/metrics`: text that a real Prometheus can scrape. Set `honor_labels: true`: one target has the series of all nodes.

Counters follow the pods, with throttling, and never decrease. They are advanced at each scrape.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rebalancer.lab.clock import LabClock
from rebalancer.lab.faults import Faults, Switchboard, names_node
from rebalancer.lab.loads.amounts import memory
from rebalancer.lab.loads.contention import ContentionModel
from rebalancer.lab.loads.history import Columns, Machine, Stay
from rebalancer.lab.loads.usage import UsageModel
from rebalancer.lab.prometheus.gauges import AVAILABLE, TOTAL, WORKING_SET
from rebalancer.lab.prometheus.kube_state import KubeState
from rebalancer.lab.prometheus.rates import (
    CONTAINER_WAITING,
    NODE_WAITING,
    PERIODS,
    PERIODS_IN_A_SECOND,
    THROTTLED_PERIODS,
    container_labels,
)
from rebalancer.lab.prometheus.row import node_labels
from rebalancer.lab.prometheus.series import CONTAINER_COUNTER, MODES, NODE_COUNTER, cores_of
from rebalancer.model.measured.history import DAY_SECONDS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STEP_SECONDS = 5.0
_MOST_STEPS = 4000
_UP_BEFORE_SECONDS = 30.0 * DAY_SECONDS


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

    def begin_at(self, moment: float) -> None:
        """Count from an earlier moment than the lab's start; before the first `advance`."""
        self._last = moment

    def advance(
        self, at: float | None = None
    ) -> tuple[Columns, float, dict[str, float], dict[str, float], dict[str, float]]:
        """Advance to `at`, now when absent: (history, now, pod uid -> seconds, node -> busy seconds, node -> all)."""
        with self._lock:
            now = self._clock.now() if at is None else at
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


class WaitingCounters:
    """Waiting time of tasks since the lab's start. Thread-safe."""

    def __init__(self, *, model: ContentionModel, clock: LabClock) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._last = clock.started_at
        self.nodes: dict[str, float] = defaultdict(float)
        """Node -> seconds."""
        self.pods: dict[str, float] = defaultdict(float)
        """Pod uid -> seconds."""
        self.periods: dict[str, float] = defaultdict(float)
        """Pod uid -> CFS periods."""
        self.throttled: dict[str, float] = defaultdict(float)
        """Pod uid -> those in which it was throttled."""

    def begin_at(self, moment: float) -> None:
        """Count from an earlier moment than the lab's start; before the first `advance`."""
        self._last = moment

    def advance(self, now: float) -> None:
        """Advance to now."""
        with self._lock:
            span = now - self._last
            if span > 0:
                self._add(self._last, span)
                self._last = now

    def _add(self, begin: float, span: float) -> None:
        steps = int(np.clip(np.ceil(span / _STEP_SECONDS), 1, _MOST_STEPS))
        waiting = self._model.mean(begin + span * (np.arange(steps) + 0.5) / steps)
        for row, machine in enumerate(waiting.columns.machines):
            self.nodes[machine.name] += float(waiting.nodes[row]) * span
        for row, index in enumerate(waiting.rows.tolist()):
            uid, ran = waiting.columns.stays[index].uid, float(waiting.ran[row]) * span
            self.pods[uid] += float(waiting.pods[row]) * ran
            self.periods[uid] += PERIODS_IN_A_SECOND * ran
            self.throttled[uid] += float(waiting.throttled[row]) * PERIODS_IN_A_SECOND * ran


class MetricsPage:
    """The page of one lab."""

    def __init__(
        self,
        *,
        usage: UsageModel,
        contention: ContentionModel,
        kube_state: KubeState,
        clock: LabClock,
        faults: Switchboard,
    ) -> None:
        self._kube_state = kube_state
        self._counters = Counters(usage=usage, clock=clock)
        self._waiting = WaitingCounters(model=contention, clock=clock)
        self._faults = faults

    def begin_at(self, moment: float) -> None:
        """Count from an earlier moment than the lab's start; before the first page."""
        self._counters.begin_at(moment)
        self._waiting.begin_at(moment)

    def text(self, at: float | None = None) -> str:
        """The page at a moment that is not before that of an earlier page; now when absent."""
        return text(self._counters, self._waiting, self._kube_state, self._faults, at)


def text(
    counters: Counters, waiting: WaitingCounters, kube_state: KubeState, faults: Switchboard, at: float | None = None
) -> str:
    """The whole page, now when `at` is absent. Missing nodes have no series, nodes with the fault `nan` show NaN."""
    columns, now, pods, busy, up = counters.advance(at)
    waiting.advance(now)
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
    lines += _waiting(waiting, machines, running, state)
    lines += _memory(columns, now, state)
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
    for name in () if names_node(state.missing, "") else kube_state.spans:
        lines += _head(name, "gauge", "As by kube-state-metrics.")
        lines += [_line(name, labels, value) for labels, value in kube_state.lines(name, now)]
    return "\n".join(lines) + "\n"


def _waiting(
    waiting: WaitingCounters, machines: Sequence[Machine], running: Sequence[Stay], state: Faults
) -> Iterator[str]:
    addresses = {machine.name: machine.address for machine in machines}
    yield from _head(NODE_WAITING, "counter", "Total time in seconds that processes have waited for CPU time.")
    for machine in machines:
        value = float("nan") if names_node(state.nan, machine.name) else waiting.nodes[machine.name]
        yield _line(NODE_WAITING, node_labels(machine.address), value)
    families = (
        (
            CONTAINER_WAITING,
            "Total time duration tasks in the container have waited due to CPU congestion.",
            waiting.pods,
        ),
        (PERIODS, "Number of elapsed enforcement period intervals.", waiting.periods),
        (THROTTLED_PERIODS, "Number of throttled period intervals.", waiting.throttled),
    )
    for name, meaning, values in families:
        yield from _head(name, "counter", meaning)
        for stay in running:
            labels = container_labels(stay, addresses[stay.node])
            if name != CONTAINER_WAITING:
                # cAdvisor has them only where a limit is enforced
                labels = labels[1:] if stay.limit_cores < float("inf") else []
            for each in labels:
                yield _line(name, each, values[stay.uid])


def _memory(columns: Columns, now: float, state: Faults) -> Iterator[str]:
    used = memory(columns, np.array([now]))
    addresses = {machine.name: machine.address for machine in columns.machines}
    machines = [
        (row, machine)
        for row, machine in enumerate(columns.machines)
        if used.up[row, 0] and not names_node(state.missing, machine.name)
    ]
    yield from _head(TOTAL, "gauge", "Memory information field MemTotal_bytes.")
    for _, machine in machines:
        yield _line(TOTAL, node_labels(machine.address), machine.memory_bytes)
    yield from _head(AVAILABLE, "gauge", "Memory information field MemAvailable_bytes.")
    for row, machine in machines:
        value = machine.memory_bytes - float(used.nodes[row, 0])
        value = float("nan") if names_node(state.nan, machine.name) else value
        yield _line(AVAILABLE, node_labels(machine.address), value)
    yield from _head(WORKING_SET, "gauge", "Current working set in bytes.")
    for at, index in enumerate(used.rows.tolist()):
        stay = columns.stays[index]
        if names_node(state.missing, stay.node):
            continue
        labels, *containers = container_labels(stay, addresses[stay.node])
        yield _line(WORKING_SET, labels, float(used.pods[at, 0]))
        for each, (_, _, share) in zip(containers, stay.containers, strict=True):
            yield _line(WORKING_SET, each, float(used.pods[at, 0]) * share)


def _head(name: str, type_: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {type_}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
    return f"{name}{{{pairs}}} {'NaN' if np.isnan(value) else repr(value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
