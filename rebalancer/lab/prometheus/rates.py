"""Rates of the contention counters, as the lab's Prometheus serves them.

Names and labels are node_exporter's and cAdvisor's. cAdvisor has the CFS counters only for containers with a CPU limit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rebalancer.lab.faults import Switchboard, names_node
from rebalancer.lab.loads.contention import ContentionModel, Waiting
from rebalancer.lab.loads.history import Stay
from rebalancer.lab.prometheus.promql import NotPlainError, Rate, Selector

NODE_WAITING = "node_pressure_cpu_waiting_seconds_total"
CONTAINER_WAITING = "container_pressure_cpu_waiting_seconds_total"
PERIODS = "container_cpu_cfs_periods_total"
THROTTLED_PERIODS = "container_cpu_cfs_throttled_periods_total"
PERIODS_IN_A_SECOND = 10.0

Labels = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """One series at one moment."""

    labels: Labels
    node: str
    value: float


class ContentionRates:
    """Evaluates `Rate` queries."""

    def __init__(self, *, model: ContentionModel, faults: Switchboard) -> None:
        self._model = model
        self._faults = faults
        self._families: Mapping[str, Callable[[Waiting], Iterator[RateRow]]] = {
            NODE_WAITING: _node_rates,
            CONTAINER_WAITING: lambda waiting: container_rates(waiting, lambda row: float(waiting.pods[row])),
            PERIODS: lambda waiting: limited_rates(waiting, lambda _: PERIODS_IN_A_SECOND),
            THROTTLED_PERIODS: lambda waiting: limited_rates(
                waiting, lambda row: float(waiting.throttled[row]) * PERIODS_IN_A_SECOND
            ),
        }

    def select(self, rate: Rate, *, at: float, window_seconds: float) -> list[tuple[Labels, float]]:
        """(labels, value) of each group. Raises NotPlainError for a metric that has no rate in the lab."""
        waiting = self._model.window_mean(at, window_seconds=window_seconds)
        rows = self._rows(rate.counter, waiting)
        if rate.per is not None:
            divisors = {_key(row.labels): row.value for row in self._rows(rate.per, waiting)}
            rows = [
                RateRow(labels=row.labels, node=row.node, value=row.value / divisor)
                for row in rows
                if (divisor := divisors.get(_key(row.labels)))
            ]
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for row in rows:
            key = tuple((name, row.labels[name]) for name in rate.labels if name in row.labels)
            groups[key] = max(groups.get(key, row.value), row.value)
        return [(dict(key), value) for key, value in groups.items()]

    def _rows(self, selector: Selector, waiting: Waiting) -> list[RateRow]:
        family = self._families.get(selector.name)
        if family is None:
            raise NotPlainError(f"rate({selector.name})")
        state = self._faults.state
        return [
            row
            if not names_node(state.nan, row.node)
            else RateRow(labels=row.labels, node=row.node, value=float("nan"))
            for row in family(waiting)
            if selector.matches(row.labels) and not names_node(state.missing, row.node)
        ]


def _node_rates(waiting: Waiting) -> Iterator[RateRow]:
    for row, machine in enumerate(waiting.columns.machines):
        if waiting.up[row]:
            labels = {"instance": f"{machine.address}:9100", "job": "node-exporter"}
            yield RateRow(labels=labels, node=machine.name, value=float(waiting.nodes[row]))


def container_rates(waiting: Waiting, value_of: Callable[[int], float]) -> Iterator[RateRow]:
    """The containers of all pods, and each pod as a whole. `value_of` takes a row of `waiting`."""
    addresses = {machine.name: machine.address for machine in waiting.columns.machines}
    for row, index in enumerate(waiting.rows.tolist()):
        if not waiting.ran[row]:
            continue
        stay = waiting.columns.stays[index]
        value = value_of(row)
        for labels in container_labels(stay, addresses[stay.node]):
            yield RateRow(labels=labels, node=stay.node, value=value)


def limited_rates(waiting: Waiting, value_of: Callable[[int], float]) -> Iterator[RateRow]:
    """The same of pods with a CPU limit, containers only."""
    limited = {
        (stay.namespace, stay.pod, stay.node) for stay in waiting.columns.stays if stay.limit_cores < float("inf")
    }
    for row in container_rates(waiting, value_of):
        of = row.labels["namespace"], row.labels["pod"], row.node
        if "container" in row.labels and of in limited:
            yield row


def container_labels(stay: Stay, address: str) -> list[Labels]:
    """Labels of cAdvisor's series: first those of the whole pod, without a container, then each container's."""
    common = {"namespace": stay.namespace, "pod": stay.pod, "node": stay.node, "job": "kubelet"}
    common["instance"] = f"{address}:10250"
    return [common, *({**common, "container": name, "image": image} for name, image, _ in stay.containers)]


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
