"""A day of two nodes and two pods, read from a Prometheus of our own words."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock
from rebalancer.prometheus.history.ranges import PrometheusHistory
from tests.prometheus.builders import NoProgress, a_cluster, a_source, fake_prometheus
from tests.prometheus.fakes import DAY, OWN, START, Clock, Line, Past, line

NODES: dict[str, list[str]] = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}
NOW = START + DAY_SECONDS + 3600.0
HEALTHY = [
    line("node:cpu", 1.5, node="a"),
    line("node:cpu", 2.5, node="b"),
    line("pod:cpu", 0.25, namespace="shop", pod="web-0", node="a"),
    line("pod:cpu", 0.5, namespace="shop", pod="web-1", node="b"),
]


def a_snapshot(nodes: Mapping[str, Sequence[str]] = NODES) -> ClusterSnapshot:
    snapshot = a_cluster(nodes, cpu=4000)
    old = np.full(len(nodes), START - 30 * DAY_SECONDS)
    return replace(snapshot, nodes=replace(snapshot.nodes, created=old))


def a_past(lines: Sequence[Line] = HEALTHY, **fields: Any) -> Past:
    return Past(lines=lines, clock=Clock(NOW), **fields)


@contextmanager
def reading(past: Past, *, per_hour: int = 600, **fields: Any) -> Iterator[PrometheusHistory]:
    with fake_prometheus(past) as fake:
        source = a_source(fake.url, **{**OWN, "history": {"queriesPerHour": per_hour}, **fields})
        history = PrometheusHistory(source, clock=past.clock, progress=NoProgress())
        try:
            yield history
        finally:
            history.close()


def read(
    past: Past, *, first: int = 0, end: int = SLOTS, snapshot: ClusterSnapshot | None = None, **fields: Any
) -> Any:
    """The day as a DayBlock, or None."""
    with reading(past, **fields) as history:
        pull = history.pull(DAY, first=first, end=end, snapshot=snapshot or a_snapshot())
        assert pull.advance()
        return pull.onto(None)


def pod(block: DayBlock, name: str) -> list[float]:
    return block.pod_millicores[block.pod_row[name]].tolist()


def node(block: DayBlock, name: str) -> list[float]:
    return block.node_millicores[block.node_row[name]].tolist()
