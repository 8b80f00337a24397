"""kube-state-metrics of the lab: the families that say what was there, when, and on which node.

Names and labels are those of kube-state-metrics v2.
Source: https://github.com/kubernetes/kube-state-metrics/tree/main/docs
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from rebalancer.lab.objects.object_history import BudgetRecord, NodeRecord, ObjectHistory, PodRecord
from rebalancer.lab.prometheus.row import Row
from rebalancer.model.cluster.pods import PHASES
from rebalancer.model.notation.arrays import Floats

JOB = {"job": "kube-state-metrics"}
_OWNER_METRICS = {"replicasets": ("kube_replicaset_owner", "replicaset"), "jobs": ("kube_job_owner", "job_name")}


class Span(NamedTuple):
    """A series, its value, and when it had it."""

    labels: dict[str, str]
    value: float
    start: float
    end: float


Family = Callable[[], Iterator[Span]]
Record = TypeVar("Record")


class KubeState:
    """The families of one lab."""

    def __init__(self, history: ObjectHistory) -> None:
        self._history = history
        pods: Mapping[str, Callable[[PodRecord], Iterator[Span]]] = {
            "kube_pod_created": lambda pod: _since(pod, pod.since, pod.created),
            "kube_pod_status_scheduled_time": lambda pod: _since(pod, pod.bound, pod.bound),
            "kube_pod_start_time": lambda pod: _since(pod, pod.started, pod.started),
            "kube_pod_status_ready_time": lambda pod: _since(pod, pod.ready, pod.ready, end=pod.finished),
            "kube_pod_completion_time": lambda pod: _since(pod, pod.finished, pod.finished),
            "kube_pod_status_phase": _phases,
            "kube_pod_container_resource_requests": _requests,
        }
        nodes: Mapping[str, Callable[[NodeRecord], Iterator[Span]]] = {
            "kube_node_created": lambda node: _of_node(node, node.created),
            "kube_node_labels": lambda node: _of_node(node, 1.0),
            "kube_node_status_capacity": lambda node: _amounts(node, "capacity"),
            "kube_node_status_allocatable": lambda node: _amounts(node, "allocatable"),
            "kube_node_status_condition": _conditions,
            "kube_node_spec_unschedulable": _unschedulable,
            "kube_node_spec_taint": _taints,
        }
        budgets = {
            "kube_poddisruptionbudget_status_desired_healthy": 1,
            "kube_poddisruptionbudget_status_current_healthy": 2,
            "kube_poddisruptionbudget_status_expected_pods": 3,
            "kube_poddisruptionbudget_status_pod_disruptions_allowed": 4,
        }
        self.spans: dict[str, Family] = {
            "kube_pod_info": self._each(self._history.pods, pod_info),
            **{name: self._each(self._history.pods, of) for name, of in pods.items()},
            **{name: self._each(self._history.nodes, of) for name, of in nodes.items()},
            **{name: self._each(self._history.budgets, _budget(column)) for name, column in budgets.items()},
            **{name: self._owners(plural) for plural, (name, _) in _OWNER_METRICS.items()},
        }
        """Metric -> everything that it has shown so far."""

    @property
    def families(self) -> dict[str, Callable[[Floats], Iterator[Row]]]:
        """Metric -> its series at any times."""
        return {name: _rows(spans) for name, spans in self.spans.items()}

    def lines(self, name: str, at: float) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and values of a metric at one moment."""
        return ((each.labels, each.value) for each in self.spans[name]() if each.start <= at < each.end)

    @staticmethod
    def _each(records: Callable[[], Sequence[Record]], of: Callable[[Record], Iterator[Span]]) -> Family:
        return lambda: (span for record in records() for span in of(record))

    def _owners(self, plural: str) -> Family:
        _, label = _OWNER_METRICS[plural]

        def spans() -> Iterator[Span]:
            for each in self._history.owners():
                if each.plural == plural:
                    kind, name = each.owner
                    labels = {**JOB, "namespace": each.namespace, label: each.name}
                    labels |= {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if kind else ""}
                    yield Span(labels, 1.0, each.since, each.gone)

        return spans


def pod_info(pod: PodRecord) -> Iterator[Span]:
    """`kube_pod_info` of a pod: without a node until it is bound."""
    labels = {
        **_pod(pod),
        "created_by_kind": pod.owner[0],
        "created_by_name": pod.owner[1],
        "priority_class": pod.priority_class,
    }
    bound = -math.inf if pod.since == -math.inf and pod.node else pod.bound
    yield Span({**labels, "node": ""}, 1.0, pod.since, min(bound, pod.gone))
    yield Span({**labels, "node": pod.node}, 1.0, bound, pod.gone)


def _rows(spans: Family) -> Callable[[Floats], Iterator[Row]]:
    def rows(times: Floats) -> Iterator[Row]:
        found: dict[tuple[tuple[str, str], ...], Row] = {}
        for span in spans():
            present = (span.start <= times) & (times < span.end)
            if not present.any():
                continue
            key = tuple(sorted(span.labels.items()))
            row = found.get(key)
            if row is None:
                row = found[key] = Row(
                    labels=span.labels, node="", values=np.zeros(len(times)), present=present.copy(), raw=True
                )
            row.values[present] = span.value
            row.present[present] = True
        yield from found.values()

    return rows


def _pod(pod: PodRecord) -> dict[str, str]:
    return {**JOB, "namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}


def _since(pod: PodRecord, start: float, value: float, *, end: float = math.inf) -> Iterator[Span]:
    if start < math.inf:
        yield Span(_pod(pod), value, max(start, pod.since), min(end, pod.gone))


def _phases(pod: PodRecord) -> Iterator[Span]:
    running = min(pod.started, pod.finished)
    spans = {"Pending": (pod.since, running), "Running": (running, pod.finished)}
    final = pod.phase if pod.phase in ("Succeeded", "Failed") else "Succeeded"
    spans[final] = (pod.finished, pod.gone)
    for phase in PHASES:
        begin, end = spans.get(phase, (pod.gone, pod.gone))
        begin, end = (min(max(each, pod.since), pod.gone) for each in (begin, end))
        labels = {**_pod(pod), "phase": phase}
        for value, since, until in ((0.0, pod.since, begin), (1.0, begin, end), (0.0, end, pod.gone)):
            if since < until:
                yield Span(labels, value, since, until)


def _requests(pod: PodRecord) -> Iterator[Span]:
    for container, resource, amount in pod.requests:
        labels = {
            **_pod(pod),
            "container": container,
            "node": pod.node,
            "resource": resource,
            "unit": "core" if resource == "cpu" else "byte",
        }
        yield Span(labels, amount, pod.since, pod.gone)


def _of_node(node: NodeRecord, value: float, **labels: str) -> Iterator[Span]:
    yield Span({**JOB, "node": node.name, **labels}, value, node.since, node.gone)


def _amounts(node: NodeRecord, wanted: str) -> Iterator[Span]:
    for (kind, resource), amount in node.amounts.items():
        if kind == wanted:
            name = "".join(each if each.isalnum() else "_" for each in resource)
            yield from _of_node(node, amount, resource=name)


def _conditions(node: NodeRecord) -> Iterator[Span]:
    for status, wanted in (("true", True), ("false", False)):
        labels = {**JOB, "node": node.name, "condition": "Ready", "status": status}
        yield from _states(node, labels, [(each.at, float(each.ready is wanted)) for each in node.states])


def _unschedulable(node: NodeRecord) -> Iterator[Span]:
    yield from _states(node, {**JOB, "node": node.name}, [(each.at, float(each.unschedulable)) for each in node.states])


def _taints(node: NodeRecord) -> Iterator[Span]:
    for state, end in zip(node.states, [*(each.at for each in node.states[1:]), node.gone], strict=True):
        for key, value, effect in state.taints:
            labels = {**JOB, "node": node.name, "key": key, "value": value, "effect": effect}
            yield Span(labels, 1.0, state.at, end)


def _budget(column: int) -> Callable[[BudgetRecord], Iterator[Span]]:
    def spans(budget: BudgetRecord) -> Iterator[Span]:
        labels = {**JOB, "namespace": budget.namespace, "poddisruptionbudget": budget.name}
        yield from _states(budget, labels, [(each.at, float(each[column])) for each in budget.states])

    return spans


def _states(
    record: NodeRecord | BudgetRecord, labels: dict[str, str], states: Sequence[tuple[float, float]]
) -> Iterator[Span]:
    ends = [*(at for at, _ in states[1:]), record.gone]
    for (at, value), end in zip(states, ends, strict=True):
        if at < end:
            yield Span(labels, value, at, end)
