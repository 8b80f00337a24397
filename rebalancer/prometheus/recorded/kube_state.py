"""The objects of a cluster over some days, from the metrics of kube-state-metrics v2.

What came or went is read window by window: series that the end of a window has and its beginning hasn't, and those
that its end hasn't any more. So an answer is as large as the changes, not as the cluster. What came and went between
two ends is then read by the names of its pods, and so is the time of the last sample of those that ended. Times of
creation, binding and readiness are values of metrics.

Source of the metrics: https://github.com/kubernetes/kube-state-metrics/tree/main/docs
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.steering import CORDONS, SOFT_TAINT
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.measured.history import STEP_SECONDS, Grid
from rebalancer.model.notation.arrays import Bools
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.chunks import any_of
from rebalancer.prometheus.promql.queries import CLUSTER_LABEL, NODE_INFO
from rebalancer.prometheus.recorded.families import (
    COMPLETED,
    FINISHED,
    OWNERS,
    POD,
    POD_INFO,
    POD_TIMES,
    PODS,
    REQUESTS,
    Family,
)
from rebalancer.prometheus.recorded.windows import Window, WindowReader

Labels = Mapping[str, str]
PodKey = tuple[str, str, str]
"""Namespace, name, uid."""

CHANGE_SECONDS = 24 * 3600.0
"""Window of what came. What is read by name costs Prometheus far less than comparing all series of two moments."""
_ENDED_SECONDS = 3 * 3600.0
"""Window of what ended: the times of the ends are looked for in it, minute by minute."""
_LATE_SECONDS = 1800.0
"""A pod that was Ready so long after its creation may have been Ready before, and has become so again."""
_LOOKBACK_SECONDS = 300
"""Prometheus shows a series for so long after its last sample, if nothing says that it has ended."""
_LIST_POINTS = 2_000_000
"""Points of one answer over time."""
_MOST_STEPS = 10_000
"""Prometheus refuses more than 11,000 points of one series."""
_NAMES_AT_ONCE = 200
MINUTE = 60.0


class Bound(NamedTuple):
    """A pod as `kube_pod_info` has it."""

    node: str
    owner: tuple[str, str]
    """Kind and name of its controller, empty for none."""
    priority_class: str


@dataclass(kw_only=True)
class PodHistory:
    """Pods that were there at some time; times in seconds since the epoch, absent where not known."""

    info: dict[PodKey, Bound] = field(default_factory=dict)
    ended: dict[PodKey, float] = field(default_factory=dict)
    """Last sample of those that are gone."""
    finished: dict[PodKey, float] = field(default_factory=dict)
    """Succeeded or failed."""
    created: dict[PodKey, float] = field(default_factory=dict)
    scheduled: dict[PodKey, float] = field(default_factory=dict)
    started: dict[PodKey, float] = field(default_factory=dict)
    ready: dict[PodKey, float] = field(default_factory=dict)
    cpu_cores: dict[PodKey, float] = field(default_factory=dict)
    memory_bytes: dict[PodKey, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class NodeHistory:
    """Nodes that were there at some time, by name."""

    address: dict[str, str] = field(default_factory=dict)
    """Every node, and its address (empty where not known)."""
    at_start: frozenset[str] = frozenset()
    """Nodes that were there at the start."""
    joined: dict[str, float] = field(default_factory=dict)
    """Creation of those that are gone."""
    left: dict[str, float] = field(default_factory=dict)
    """Last sample of those that are gone."""
    amounts: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """(node, `capacity` or `allocatable`, resource as kube-state-metrics spells it) -> cores, bytes or a count."""
    labels: dict[str, Labels] = field(default_factory=dict)
    """Those that are exported, as `kube_node_labels` spells them."""
    taints: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    """(key, value, effect) of those that a node had most of the time."""
    returned: dict[str, float] = field(default_factory=dict)
    """First creation of those that were created again under their name."""
    absent: dict[str, Bools] = field(default_factory=dict)
    """(steps,) between leaving and coming back."""
    not_ready: dict[str, Bools] = field(default_factory=dict)
    """(steps,) of nodes that weren't Ready at some time."""
    unschedulable: dict[str, Bools] = field(default_factory=dict)
    """(steps,) of nodes that were cordoned at some time, by another than rebalancer."""


class KubeState:
    """Reads one cluster's objects over a span of time."""

    def __init__(self, reader: WindowReader, *, cluster: str = "") -> None:
        """`cluster`: value of the label CLUSTER_LABEL, where several clusters share the Prometheus."""
        self._reader = reader
        self._cluster = cluster
        self._matchers = (any_of(CLUSTER_LABEL, [cluster]),) if cluster else ()
        self._span = reader.span

    @property
    def is_relabelled(self) -> bool:
        """Prometheus has renamed the labels of pods, because those of the scraped target have the same names."""
        renamed = self._selector(POD_INFO, 'exported_pod!=""')
        return bool(len(self._reader.at(f"count({renamed})", self._span.end).values))

    def pods(self) -> PodHistory:
        """All pods."""
        out = PodHistory()
        vanished, present = self._vanished("Ends of pods", POD_INFO, POD, name="pod")
        gone = {(namespace, pod, uid): at for (namespace, pod, uid), at in vanished.items()}
        for part in self._of_pods("Pods", PODS, gone):
            for labels in part.labels:
                bound = Bound(
                    node=labels.get("node", ""),
                    owner=_reference(labels.get("created_by_kind", ""), labels.get("created_by_name", "")),
                    priority_class=labels.get("priority_class", ""),
                )
                key = _pod(labels)
                # while it waits for its node the label is empty
                if bound.node or key not in out.info:
                    out.info[key] = bound
        out.ended = {key: at for key, at in gone.items() if key not in present}
        for name, family in POD_TIMES.items():
            setattr(out, name, self._pod_values(family, gone))
        late = [key for key, at in out.ready.items() if at > out.created.get(key, at) + _LATE_SECONDS]
        for part in self._named(POD_TIMES["ready"], "pod", (pod for _, pod, _ in late)):
            for labels, value in part.items():
                out.ready[_pod(labels)] = value
        out.finished = self._finished(gone)
        for part in self._of_pods("Requests of pods", REQUESTS, gone):
            for labels, value in part.items():
                into = out.cpu_cores if labels.get("resource") == "cpu" else out.memory_bytes
                into[_pod(labels)] = value
        return out

    def nodes(self) -> NodeHistory:
        """All nodes."""
        out = NodeHistory()
        whole = f"max by (node, internal_ip) (last_over_time({self._selector(NODE_INFO)}[{self._span.promql}]))"
        for labels in self._reader.at(whole, self._span.end).labels:
            out.address[labels.get("node", "")] = labels.get("internal_ip", "")
        at_start = self._reader.at(f"group by (node) ({self._selector(NODE_INFO)})", self._span.start)
        out.at_start = frozenset(labels.get("node", "") for labels in at_start.labels)
        vanished, present = self._vanished("Nodes that left", NODE_INFO, ("node",), name="node")
        out.left = {name: at for (name,), at in vanished.items() if (name,) not in present}
        for names in _any_of("node", out.left):
            self._add_gone(out, names)
        self._add_returned(out)
        ready = self._selector("kube_node_status_condition", 'condition="Ready"', 'status="true"')
        out.not_ready = self._flags("Nodes that weren't Ready", f"{ready} == 0")
        cordoned = self._selector("kube_node_spec_unschedulable")
        # a cordon of ours is a decision, which a replay makes itself, as its soft taint is
        ours = self._selector("kube_node_spec_taint", any_of("key", [SOFT_TAINT]), any_of("value", CORDONS))
        others = f"{cordoned} == 1 unless on (node) {ours}"
        out.unschedulable = self._flags("Nodes that were cordoned", others)
        return out

    def _add_returned(self, out: NodeHistory) -> None:
        """Nodes that were created more than once, and when they were absent in between."""
        created = f"{self._selector('kube_node_created')}[{self._span.promql}]"
        first, last = (f"{each} by (node) ({each}_over_time({created}))" for each in ("min", "max"))
        out.returned = _by_node(self._reader.at(f"{first} < {last}", self._span.end))
        if not out.returned:
            return
        scraped = self._flags("Scrapes of nodes", f"count({self._selector(NODE_INFO)})")[""]
        for names in _any_of("node", out.returned):
            for name, there in self._flags("Nodes that came back", self._selector(NODE_INFO, names)).items():
                (known,) = np.nonzero(there)
                absent = scraped & ~there
                absent[: known[0]] = absent[known[-1] :] = False
                if absent.any():
                    out.absent[name] = absent

    def _add_gone(self, out: NodeHistory, names: str) -> None:
        """What today's objects don't have: created, amounts, labels and taints of nodes that are gone."""

        def over(metric: str, by: str, function: str = "max", over: str = "last_over_time") -> decode.Vector:
            series = f"{over}({self._selector(metric, names)}[{self._span.promql}])"
            return self._reader.at(f"{function} by ({by}) ({series})" if by else series, self._span.end)

        out.joined |= _by_node(over("kube_node_created", "node"))
        for name in ("capacity", "allocatable"):
            found = over(f"kube_node_status_{name}", "node, resource")
            for labels, value in found.items():
                out.amounts[labels.get("node", ""), name, labels.get("resource", "")] = value
        for labels in over("kube_node_labels", "").labels:
            out.labels[labels.get("node", "")] = labels
        seen = _by_node(over(NODE_INFO, "node", "sum", "count_over_time"))
        taints = over("kube_node_spec_taint", "node, key, value, effect", "sum", "count_over_time")
        for labels, count in taints.items():
            node = labels.get("node", "")
            if count > seen.get(node, np.inf) / 2:
                taint = labels.get("key", ""), labels.get("value", ""), labels.get("effect", "")
                out.taints.setdefault(node, []).append(taint)

    def parents(self, pods: PodHistory) -> Mapping[tuple[str, str, str], tuple[str, str]]:
        """(kind, namespace, name) of ReplicaSets and Jobs -> kind and name of their controllers."""
        out: dict[tuple[str, str, str], tuple[str, str]] = {}
        named = {(each.owner[0], key[0], each.owner[1]) for key, each in pods.info.items()}
        for kind, family in OWNERS.items():
            label = family.key[1]

            def add(part: decode.Vector, kind: str = kind, label: str = label) -> None:
                for labels in part.labels:
                    owner = _reference(labels.get("owner_kind", ""), labels.get("owner_name", ""))
                    out[kind, labels.get("namespace", ""), labels.get(label, "")] = owner

            for part in self._new(f"Owners of {kind}s", family):
                add(part)
            for part in self._named(family, label, [key[2] for key in named if key[0] == kind and key not in out]):
                add(part)
        return out

    def healthy(self) -> Mapping[tuple[str, str], Grid]:
        """(namespace, name) of each PodDisruptionBudget -> (steps,) `desiredHealthy`, NaN while it wasn't there."""
        metric = "kube_poddisruptionbudget_status_desired_healthy"
        promql = f"max by (namespace, poddisruptionbudget) ({self._selector(metric)})"
        return {
            (labels.get("namespace", ""), labels.get("poddisruptionbudget", "")): row
            for labels, row in self._over("Budgets", promql, STEP_SECONDS, series=self._count(metric))
        }

    def alerts(self) -> list[tuple[Labels, Grid]]:
        """Labels of each alert, and (minutes,) NaN while it didn't fire."""
        return self._minutes("Alerts", "ALERTS", 'alertstate="firing"')

    def evictions(self) -> list[tuple[Labels, Grid]]:
        """Labels of each counter of rebalancer's evictions, and its (minutes,) values, NaN where there is none."""
        return self._minutes("Evictions", "rebalancer_evictions_total", f'outcome="{Outcome.EVICTED}"')

    def soft_taints(self) -> list[tuple[Labels, Grid]]:
        """Labels of each of our soft taints, and (minutes,) NaN while the node hadn't it."""
        selector = self._selector("kube_node_spec_taint", any_of("key", [SOFT_TAINT]))
        promql = f"max by (node) ({selector})"
        return self._over("Soft taints", promql, MINUTE, series=100)

    def _minutes(self, label: str, metric: str, *matchers: str) -> list[tuple[Labels, Grid]]:
        # a rule's series, and the daemon's, may lack the label that tells clusters apart
        own = (any_of(CLUSTER_LABEL, ["", self._cluster]),) if self._cluster else ()
        selector = f"{metric}{{{','.join((*matchers, *own))}}}"
        return self._over(label, selector, MINUTE, series=100)

    def _over(self, label: str, promql: str, step: float, *, series: int) -> list[tuple[Labels, Grid]]:
        """Series of a query, and their values in the middle of each step; `series` is about how many."""
        steps = round(self._span.seconds / step)
        seconds = min(max(_LIST_POINTS // max(series, 1), 12) * step, _MOST_STEPS * step)
        rows: dict[tuple[tuple[str, str], ...], Grid] = {}
        for lines, values, begin in self._reader.lines(label, promql, step=step, seconds=seconds):
            first = round((begin - self._span.start) / step)
            for labels, row in zip(lines.labels, values, strict=True):
                key = tuple(sorted(labels.items()))
                if key not in rows:
                    rows[key] = np.full(steps, np.nan, dtype=np.float32)
                rows[key][first : first + len(row)] = row
        return [(dict(key), row) for key, row in rows.items()]

    def _flags(self, label: str, promql: str) -> dict[str, Bools]:
        found = self._over(label, f"max by (node) ({promql})", STEP_SECONDS, series=100)
        return {labels.get("node", ""): np.isfinite(row) for labels, row in found}

    def _selector(self, metric: str, *matchers: str) -> str:
        inside = ",".join((*matchers, *self._matchers))
        return f"{metric}{{{inside}}}" if inside else metric

    def _count(self, metric: str) -> int:
        """Series of a metric at the ends of the span: the larger number."""
        query = f"count({self._selector(metric)})"
        counts = [self._reader.at(query, at).values for at in self._span]
        return max((int(each[0]) for each in counts if len(each)), default=0)

    def _new(self, label: str, family: Family) -> Iterator[decode.Vector]:
        """What there was at the start, then what came in each window and was there at its end."""
        yield self._reader.at(family.at_start(*self._matchers), self._span.start)
        yield from self._reader.changes(
            label, lambda window: family.new(window, *self._matchers), seconds=CHANGE_SECONDS
        )

    def _named(self, family: Family, label: str, names: Iterable[str]) -> list[decode.Vector]:
        """What there was at any time with one of these names."""
        queries = [
            (family.within(self._span, chosen, *self._matchers), self._span.end) for chosen in _any_of(label, names)
        ]
        return self._reader.instants(family.metric, queries) if queries else []

    def _of_pods(self, label: str, family: Family, gone: Collection[PodKey]) -> Iterator[decode.Vector]:
        """The series of all pods; `gone` are those that may have come and gone between two ends of windows."""
        seen: set[PodKey] = set()
        for part in self._new(label, family):
            seen.update(map(_pod, part.labels))
            yield part
        yield from self._named(family, "pod", (key[1] for key in gone if key not in seen))

    def _pod_values(self, family: Family, gone: Collection[PodKey]) -> dict[PodKey, float]:
        out: dict[PodKey, float] = {}
        for part in self._of_pods(family.metric, family, gone):
            for labels, value in part.items():
                key = _pod(labels)
                out[key] = min(out.get(key, np.inf), value) if family.first else value
        return out

    def _finished(self, gone: Mapping[PodKey, float]) -> dict[PodKey, float]:
        """Times of the pods that have succeeded or failed."""
        seen_at: dict[PodKey, float] = {}
        for part in self._of_pods("Pods that finished", FINISHED, gone):
            for labels in part.labels:
                seen_at.setdefault(_pod(labels), part.at)
        completed = self._pod_values(COMPLETED, seen_at) if seen_at else {}
        out, unknown = {}, defaultdict[float, list[str]](list)
        for key, at in seen_at.items():
            if key in completed:
                out[key] = completed[key]
            elif at <= self._span.start or gone.get(key, np.inf) < at:
                # before the recording, or read by its name: it was there for less than a window
                out[key] = min(at, gone.get(key, at))
            else:
                unknown[at].append(key[1])
        queries = [
            (f"min by ({', '.join(POD)}) (min_over_time(timestamp({selector} == 1)[{_promql(CHANGE_SECONDS)}:1m]))", at)
            for at, names in unknown.items()
            for selector in (FINISHED.selector(chosen, *self._matchers) for chosen in _any_of("pod", names))
        ]
        for part in self._reader.instants("Times of their end", queries) if queries else []:
            for labels, value in part.items():
                out.setdefault(_pod(labels), value)
        return out

    def _vanished(
        self, label: str, metric: str, key: Sequence[str], *, name: str
    ) -> tuple[dict[tuple[str, ...], float], set[tuple[str, ...]]]:
        """Time of the last sample of every series that the end of some window hasn't; and those that are there at the
        end of the span. `name` is the label of its name."""
        selector, by = self._selector(metric), ", ".join(key)

        def promql(window: Window) -> str:
            length = _promql(window.seconds + _LOOKBACK_SECONDS)
            return f"group by ({by}) (last_over_time({selector}[{length}]) unless on ({by}) {selector})"

        def keys(found: decode.Vector) -> list[tuple[str, ...]]:
            return [tuple(labels.get(each, "") for each in key) for labels in found.labels]

        queries = []
        for part in self._reader.changes(label, promql, seconds=_ENDED_SECONDS):
            for chosen in _any_of(name, [labels.get(name, "") for labels in part.labels]):
                series = self._selector(metric, chosen)
                length = _promql(_ENDED_SECONDS + _LOOKBACK_SECONDS)
                last = f"max by ({by}) (max_over_time(timestamp({series})[{length}:1m]))"
                queries.append((f"{last} unless on ({by}) {series}", part.at))
        gone: dict[tuple[str, ...], float] = {}
        for part in self._reader.instants(f"{label}: times", queries) if queries else []:
            gone |= zip(keys(part), part.values.tolist(), strict=True)
        return gone, set(keys(self._reader.at(f"group by ({by}) ({selector})", self._span.end)))


def _any_of(label: str, names: Iterable[str]) -> list[str]:
    """Matchers for some names at a time."""
    wanted = sorted(set(names))
    return [any_of(label, wanted[at : at + _NAMES_AT_ONCE]) for at in range(0, len(wanted), _NAMES_AT_ONCE)]


def _promql(seconds: float) -> str:
    return f"{round(seconds)}s"


def _pod(labels: Labels) -> PodKey:
    return labels.get("namespace", ""), labels.get("pod", ""), labels.get("uid", "")


def _by_node(found: decode.Vector) -> dict[str, float]:
    return {labels.get("node", ""): value for labels, value in found.items()}


def _reference(kind: str, name: str) -> tuple[str, str]:
    """Kind and name of an owner; empty for none, which older versions spell `<none>`."""
    return (kind, name) if kind not in ("", "<none>") and name else ("", "")
