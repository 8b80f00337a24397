"""Gauges of the lab's Prometheus: memory as node_exporter and cAdvisor have it, and resources of the scenario."""

from collections.abc import Callable, Iterator

import numpy as np

from rebalancer.lab.loads.amounts import Amounts, memory, named, names
from rebalancer.lab.loads.history import Columns, History, Stay
from rebalancer.lab.prometheus.row import Row, node_labels
from rebalancer.model.notation.arrays import Floats

TOTAL, AVAILABLE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
WORKING_SET = "container_memory_working_set_bytes"
NODE_USAGE, POD_USAGE = "lab_node_usage", "lab_pod_usage"
"""Named resources: a label `resource` has the name."""

Family = Callable[[Floats], Iterator[Row]]


class Gauges:
    """Values at any moment."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.families: dict[str, Family] = {
            TOTAL: self._total,
            AVAILABLE: self._available,
            WORKING_SET: self._working_sets,
            NODE_USAGE: self._node_usage,
            POD_USAGE: self._pod_usage,
        }

    def _total(self, times: Floats) -> Iterator[Row]:
        for machine in self._history.columns().machines:
            up = (machine.start <= times) & (times < machine.end)
            values = np.full(len(times), machine.memory_bytes)
            yield Row(labels=node_labels(machine.address), node=machine.name, values=values, present=up, raw=True)

    def _available(self, times: Floats) -> Iterator[Row]:
        columns = self._history.columns()
        used = memory(columns, times)
        for row, machine in enumerate(columns.machines):
            values = machine.memory_bytes - used.nodes[row]
            labels = node_labels(machine.address)
            yield Row(labels=labels, node=machine.name, values=values, present=used.up[row], raw=True)

    def _working_sets(self, times: Floats) -> Iterator[Row]:
        columns = self._history.columns()
        used = memory(columns, times)
        addresses = {machine.name: machine.address for machine in columns.machines}
        for at, stay in _stays(columns, used):
            common = {**_pod_labels(stay), "job": "kubelet", "instance": f"{addresses[stay.node]}:10250"}
            present = used.running[at]
            # as with CPU, cAdvisor also has the whole pod
            yield Row(labels=common, node=stay.node, values=used.pods[at], present=present, raw=True)
            for name, image, share in stay.containers:
                labels = {**common, "container": name, "image": image}
                yield Row(labels=labels, node=stay.node, values=used.pods[at] * share, present=present, raw=True)

    def _node_usage(self, times: Floats) -> Iterator[Row]:
        columns = self._history.columns()
        for name in names(columns):
            used = named(columns, times, name)
            for row, machine in enumerate(columns.machines):
                labels = {**node_labels(machine.address), "resource": name}
                yield Row(labels=labels, node=machine.name, values=used.nodes[row], present=used.up[row], raw=True)

    def _pod_usage(self, times: Floats) -> Iterator[Row]:
        columns = self._history.columns()
        for name in names(columns):
            used = named(columns, times, name)
            for at, stay in _stays(columns, used):
                labels = {**_pod_labels(stay), "resource": name}
                yield Row(labels=labels, node=stay.node, values=used.pods[at], present=used.running[at], raw=True)


def _stays(columns: Columns, used: Amounts) -> Iterator[tuple[int, Stay]]:
    return ((at, columns.stays[row]) for at, row in enumerate(used.rows.tolist()))


def _pod_labels(stay: Stay) -> dict[str, str]:
    return {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node}
