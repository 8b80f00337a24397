"""A lab's past as a real Prometheus would have scraped it: kube-state-metrics, node_exporter, cAdvisor, evictions."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rebalancer.lab import Lab
from rebalancer.lab.loads.amounts import Amounts, memory
from rebalancer.model.notation.arrays import Floats
from tests.real.builders.ksm_history import rising
from tests.real.builders.prometheus_days import LongSeries

GRID_SECONDS = 30.0
"""CPU is integrated in steps of this length."""
_CHUNK = 2880


def lab_history(
    lab: Lab, *, since: float, until: float, pools: Mapping[str, str], agent: str = "rebalancer"
) -> list[LongSeries]:
    """Everything that the lab did from `since` to `until`, in its own time.

    `pools` = {node: pool}: evictions by programs whose User-Agent begins with `agent` raise the daemon's counter.
    """
    return [
        *_kube_state(lab),
        *_cpu(lab, since, until),
        *_memory(lab),
        *evictions(lab, since=since, pools=pools, agent=agent),
    ]


def evictions(lab: Lab, *, since: float, pools: Mapping[str, str], agent: str = "rebalancer") -> Iterator[LongSeries]:
    """`rebalancer_evictions_total` of each pool, by the lab's log."""
    made = [each for each in lab.log.evictions() if each.code in (200, 201) and each.user_agent.startswith(agent)]
    for pool in sorted({pools[each.node] for each in made}):
        labels = {"pool": pool, "outcome": "evicted", "code": "", "job": "rebalancer", "instance": "10.42.0.3:8080"}
        times = [each.at for each in made if pools[each.node] == pool]
        yield rising("rebalancer_evictions_total", labels, times, since=since)


def _kube_state(lab: Lab) -> Iterator[LongSeries]:
    for metric, spans in lab.kube_state.spans.items():
        found: dict[tuple[tuple[str, str], ...], list[tuple[float, float, float]]] = {}
        for span in spans():
            found.setdefault(tuple(span.labels.items()), []).append((span.start, span.end, span.value))
        for labels, parts in found.items():
            yield LongSeries(
                metric=metric, labels=dict(labels), values=lambda times, parts=tuple(parts): _stepwise(parts, times)
            )
    for machine in lab.usage.history.columns().machines:
        there = [(machine.start, machine.end, 1.0)]
        info = {"node": machine.name, "internal_ip": machine.address, "job": "kube-state-metrics"}
        yield LongSeries(metric="kube_node_info", labels=info, values=lambda times, p=tuple(there): _stepwise(p, times))


def _stepwise(parts: Sequence[tuple[float, float, float]], times: Floats) -> Floats:
    out = np.full(len(times), np.nan)
    for start, end, value in parts:
        out[(start <= times) & (times < end)] = value
    return out


def _cpu(lab: Lab, since: float, until: float) -> Iterator[LongSeries]:
    """Counters of nodes and containers: sums over the grid, from `since` on."""
    edges = np.arange(since, until + GRID_SECONDS, GRID_SECONDS)
    middles = edges[:-1] + GRID_SECONDS / 2
    columns = lab.usage.history.columns()
    pods = np.zeros((len(columns.stays), len(edges)))
    nodes = np.zeros((len(columns.machines), len(edges)))
    for first in range(0, len(middles), _CHUNK):
        part = middles[first : first + _CHUNK]
        figures = lab.usage.at(part)
        at = slice(first + 1, first + 1 + len(part))
        pods[figures.rows, at] = figures.pods
        nodes[:, at] = figures.nodes
    for values in (pods, nodes):
        np.cumsum(values * GRID_SECONDS, axis=1, out=values)
    for row, machine in enumerate(columns.machines):
        labels = {"instance": f"{machine.address}:9100", "job": "node-exporter", "cpu": "0"}
        span = (machine.start, machine.end)
        yield _counter("node_cpu_seconds_total", {**labels, "mode": "user"}, edges, nodes[row], span)
        idle = machine.cores * (edges - since) - nodes[row]
        yield _counter("node_cpu_seconds_total", {**labels, "mode": "idle"}, edges, idle, span)
    for row, stay in enumerate(columns.stays):
        common = {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node, "job": "kubelet", "cpu": "total"}
        for name, _, share in stay.containers:
            labels = {**common, "container": name}
            span = (stay.start, stay.end)
            yield _counter("container_cpu_usage_seconds_total", labels, edges, pods[row] * share, span)


def _counter(
    metric: str, labels: Mapping[str, str], edges: Floats, counts: Floats, there: tuple[float, float]
) -> LongSeries:
    def values(times: Floats) -> Floats:
        return np.where((there[0] <= times) & (times < there[1]), np.interp(times, edges, counts), np.nan)

    return LongSeries(metric=metric, labels=labels, values=values)


def _memory(lab: Lab) -> Iterator[LongSeries]:
    columns = lab.usage.history.columns()
    last: dict[tuple[float, int], Amounts] = {}

    def of_day(times: Floats) -> Amounts:
        """Computed once for the series of a day, which are written one after the other."""
        key = (float(times[0]), len(times))
        if key not in last:
            last.clear()
            last[key] = memory(columns, times)
        return last[key]

    for row, machine in enumerate(columns.machines):
        labels = {"instance": f"{machine.address}:9100", "job": "node-exporter"}

        def available(times: Floats, row: int = row, total: float = machine.memory_bytes) -> Floats:
            used = of_day(times)
            return np.where(used.up[row], total - used.nodes[row], np.nan)

        there = ((machine.start, machine.end, machine.memory_bytes),)
        yield LongSeries(
            metric="node_memory_MemTotal_bytes", labels=labels, values=lambda times, p=there: _stepwise(p, times)
        )
        yield LongSeries(metric="node_memory_MemAvailable_bytes", labels=labels, values=available)
    for row, stay in enumerate(columns.stays):

        def used(times: Floats, row: int = row) -> Floats:
            found = of_day(times)
            at = np.flatnonzero(found.rows == row)
            return np.where(found.running[at[0]], found.pods[at[0]], np.nan) if len(at) else np.full(len(times), np.nan)

        labels = {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node, "container": stay.containers[0][0]}
        yield LongSeries(metric="container_memory_working_set_bytes", labels=labels, values=used)
