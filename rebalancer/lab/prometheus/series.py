"""The series of the lab's Prometheus, and their values at any moment.

Names and labels are those of kube-prometheus-stack (node-exporter mixin, kubernetes mixin, cAdvisor, kube-state-
metrics), so that a program's default queries need no change where they are plain selectors. Values of the raw counters
are the integral of the demand, without throttling; `/metrics` is exact. Sample times lie on the 15 s scrape grid.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Self

import numpy as np

from rebalancer.lab.clock import LabClock
from rebalancer.lab.faults import Switchboard, names_node
from rebalancer.lab.loads.cpu import integral_basis
from rebalancer.lab.loads.usage import SCRAPE_SECONDS, Figures, UsageModel
from rebalancer.lab.prometheus.gauges import Gauges
from rebalancer.lab.prometheus.kube_state import KubeState
from rebalancer.lab.prometheus.promql import Aggregation, Selector
from rebalancer.lab.prometheus.row import Row, node_labels
from rebalancer.lab.serving import ServedLab
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.arrays import Floats

NODE_SHARE = "instance:node_cpu_utilisation:rate5m"
NODE_CORES = "node:cpu_usage:cores"
CONTAINER_CORES = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"
NODE_COUNTER = "node_cpu_seconds_total"
CONTAINER_COUNTER = "container_cpu_usage_seconds_total"

MODES: Mapping[str, tuple[float, float]] = {
    "idle": (0.0, 0.99),
    "iowait": (0.0, 0.01),
    "system": (0.25, 0.0),
    "user": (0.75, 0.0),
}
"""Mode -> its part of the busy time, and of the idle time."""


def cores_of(cores: float) -> int:
    """Number of `cpu` labels of a machine."""
    return max(1, round(cores))


class SeriesBook:
    """All series, by name."""

    def __init__(
        self,
        *,
        usage: UsageModel,
        kube_state: KubeState,
        faults: Switchboard,
        clock: LabClock,
        history_seconds: float,
    ) -> None:
        self._usage = usage
        self._faults = faults
        self._clock = clock
        self._history_seconds = history_seconds
        self._families: dict[str, Callable[[Floats], Iterator[Row]]] = {
            NODE_SHARE: self._node_share,
            NODE_CORES: self._node_cores,
            CONTAINER_CORES: self._container_cores,
            NODE_COUNTER: self._node_counter,
            CONTAINER_COUNTER: self._container_counter,
            "kube_node_info": self._kube_node_info,
            "node_uname_info": self._node_uname_info,
            "machine_cpu_cores": self._machine_cpu_cores,
            "up": self._up,
            **Gauges(usage.history).families,
            **kube_state.families,
        }

    @classmethod
    def of(cls, lab: ServedLab) -> Self:
        """Those of a lab."""
        return cls(
            usage=lab.usage,
            kube_state=KubeState(lab.cluster.objects),
            faults=lab.faults,
            clock=lab.clock,
            history_seconds=lab.cluster.scenario.history_days * DAY_SECONDS,
        )

    def names(self) -> list[str]:
        """Every metric name."""
        return sorted(self._families)

    def select(self, selector: Selector, times: Floats) -> list[Row]:
        """The series that a selector shows at `times` (ascending). Nothing before the history or after now."""
        family = self._families.get(selector.name)
        if family is None or not len(times):
            return []
        state = self._faults.state
        rows = [row for row in family(times) if selector.matches(row.labels)]
        frozen: dict[float, dict[tuple[tuple[str, str], ...], Row]] = {}
        shown: list[Row] = []
        now = self._clock.now()
        in_range = (times <= now) & (times >= self._clock.started_at - self._history_seconds)
        for row in rows:
            if names_node(state.missing, row.node):
                continue
            stamps = np.floor(times / SCRAPE_SECONDS) * SCRAPE_SECONDS
            since, kept = self._faults.stale_since(row.node), row
            if since is not None:
                if since not in frozen:
                    held = family(np.minimum(times, since))
                    frozen[since] = {_key(each.labels): each for each in held}
                kept = frozen[since].get(_key(row.labels), row)
                if row.raw:
                    stamps = np.minimum(stamps, np.floor(since / SCRAPE_SECONDS) * SCRAPE_SECONDS)
            values = stamps if selector.timestamps else kept.values
            if names_node(state.nan, row.node) and not selector.timestamps:
                values = np.full(len(times), np.nan)
            present = kept.present & in_range
            if present.any():
                labels = row.labels if selector.timestamps else {"__name__": selector.name, **row.labels}
                shown.append(Row(labels=labels, node=row.node, values=values, present=present, raw=row.raw))
        return shown

    def aggregate(self, wanted: Aggregation, times: Floats) -> list[Row]:
        """The groups of an aggregation at `times` (ascending)."""
        rows = self.select(wanted.of, times) if isinstance(wanted.of, Selector) else self.aggregate(wanted.of, times)
        if wanted.less is not None:
            others = {_key(_without_name(row.labels)): row for row in self.select(wanted.less, times)}
            rows = [
                replace(row, values=row.values - other.values, present=row.present & other.present)
                for row in rows
                if (other := others.get(_key(_without_name(row.labels)))) is not None
            ]
        groups: dict[tuple[tuple[str, str], ...], Row] = {}
        join = np.add if wanted.by_sum else np.maximum
        for row in rows:
            labels = {name: row.labels[name] for name in wanted.labels if name in row.labels}
            other = groups.get(_key(labels))
            if other is None:
                groups[_key(labels)] = replace(row, labels=labels)
                continue
            both = join(row.values, other.values)
            values = np.where(row.present & other.present, both, np.where(row.present, row.values, other.values))
            groups[_key(labels)] = replace(other, values=values, present=row.present | other.present)
        return list(groups.values())

    # -- recording rules ----------------------------------------------------------------------------------------------

    def _node_share(self, times: Floats) -> Iterator[Row]:
        figures = self._usage.window_means(times)
        for row, machine in enumerate(figures.columns.machines):
            share = figures.nodes[row] / machine.cores
            yield Row(labels=node_labels(machine.address), node=machine.name, values=share, present=figures.up[row])

    def _node_cores(self, times: Floats) -> Iterator[Row]:
        figures = self._usage.window_means(times)
        for row, machine in enumerate(figures.columns.machines):
            labels = {"node": machine.name}
            yield Row(labels=labels, node=machine.name, values=figures.nodes[row], present=figures.up[row])

    def _container_cores(self, times: Floats) -> Iterator[Row]:
        figures = self._usage.window_means(times)
        for row, index in enumerate(figures.rows):
            stay = figures.columns.stays[index]
            for name, _, share in stay.containers:
                labels = {"namespace": stay.namespace, "pod": stay.pod, "container": name, "node": stay.node}
                yield Row(labels=labels, node=stay.node, values=figures.pods[row] * share, present=figures.seen[row])

    # -- raw counters -------------------------------------------------------------------------------------------------

    def _demand_seconds(self, figures: Figures, times: Floats) -> Floats:
        """(pods, times) CPU seconds since each pod started, or since the history began."""
        columns, rows = figures.columns, figures.rows
        origin, first = self._usage.origin, self._clock.started_at - self._history_seconds
        begin = np.maximum(columns.start[rows], first)
        end = np.minimum(columns.end[rows, None], times)
        seconds = np.zeros((len(rows), len(times)))
        table = columns.coefficients[rows]
        at_begin = integral_basis(begin - origin)
        for column in range(len(times)):
            at_end = integral_basis(end[:, column] - origin)
            seconds[:, column] = (table.T * (at_end - at_begin)).sum(axis=0)
        return np.maximum(seconds, 0.0)

    def _node_counter(self, times: Floats) -> Iterator[Row]:
        figures = self._usage.window_means(times, window_seconds=SCRAPE_SECONDS)
        elapsed = np.maximum(times - self._clock.started_at + self._history_seconds, 0.0)
        seconds = self._demand_seconds(figures, times)
        nodes = figures.columns.node[figures.rows]
        for row, machine in enumerate(figures.columns.machines):
            busy = seconds[nodes == row].sum(axis=0) + machine.overhead_cores * elapsed
            busy = np.minimum(busy, machine.cores * elapsed)
            count = cores_of(machine.cores)
            for mode, (of_busy, of_idle) in MODES.items():
                values = (of_busy * busy + of_idle * (machine.cores * elapsed - busy)) / count
                for cpu in range(count):
                    labels = {**node_labels(machine.address), "cpu": str(cpu), "mode": mode}
                    yield Row(labels=labels, node=machine.name, values=values, present=figures.up[row], raw=True)

    def _container_counter(self, times: Floats) -> Iterator[Row]:
        figures = self._usage.window_means(times, window_seconds=SCRAPE_SECONDS)
        seconds = self._demand_seconds(figures, times)
        addresses = {machine.name: machine.address for machine in figures.columns.machines}
        for row, index in enumerate(figures.rows):
            stay = figures.columns.stays[index]
            common = {
                "namespace": stay.namespace,
                "pod": stay.pod,
                "node": stay.node,
                "cpu": "total",
                "job": "kubelet",
                "instance": f"{addresses[stay.node]}:10250",
            }
            here = figures.seen[row]
            # cAdvisor also has the whole pod, without a container label: a careless sum counts twice.
            yield Row(labels=common, node=stay.node, values=seconds[row], present=here, raw=True)
            for name, image, share in stay.containers:
                labels = {**common, "container": name, "image": image}
                yield Row(labels=labels, node=stay.node, values=seconds[row] * share, present=here, raw=True)

    # -- facts --------------------------------------------------------------------------------------------------------

    def _machines(self, times: Floats, labels_of: Callable[[str, str], dict[str, str]]) -> Iterator[Row]:
        for machine in self._usage.history.columns().machines:
            up = (machine.start <= times) & (times < machine.end)
            labels = labels_of(machine.name, machine.address)
            yield Row(labels=labels, node=machine.name, values=np.ones(len(times)), present=up, raw=True)

    def _kube_node_info(self, times: Floats) -> Iterator[Row]:
        return self._machines(
            times, lambda name, address: {"node": name, "internal_ip": address, "job": "kube-state-metrics"}
        )

    def _node_uname_info(self, times: Floats) -> Iterator[Row]:
        return self._machines(times, lambda name, address: {**node_labels(address), "nodename": name})

    def _up(self, times: Floats) -> Iterator[Row]:
        return self._machines(times, lambda _, address: node_labels(address))

    def _machine_cpu_cores(self, times: Floats) -> Iterator[Row]:
        for machine in self._usage.history.columns().machines:
            up = (machine.start <= times) & (times < machine.end)
            labels = {"node": machine.name, "instance": f"{machine.address}:10250", "job": "kubelet"}
            values = np.full(len(times), machine.cores)
            yield Row(labels=labels, node=machine.name, values=values, present=up, raw=True)


def _without_name(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "__name__"}


def _key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
