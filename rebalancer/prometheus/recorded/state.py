"""A cluster's objects over some days: kube-state-metrics in Prometheus, completed by today's snapshot."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.recordings.recording import Gap, RecordedAlert, RecordedBudget, RecordedTaint
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.connection.pool import ClientPool
from rebalancer.prometheus.promql.chunks import any_of
from rebalancer.prometheus.promql.queries import CLUSTER_LABEL, NODE_INFO
from rebalancer.prometheus.recorded.disruptions import (
    alert_gaps,
    attributed,
    eviction_gaps,
    recorded_alerts,
    recorded_budgets,
    recorded_taints,
    replacements,
    rises,
)
from rebalancer.prometheus.recorded.families import POD_INFO
from rebalancer.prometheus.recorded.kube_state import KubeState, PodHistory
from rebalancer.prometheus.recorded.nodes import RecordedNodes, recorded_nodes
from rebalancer.prometheus.recorded.pods import RecordedPodTable, recorded_pods
from rebalancer.prometheus.recorded.windows import Window, WindowReader, spans

_DAY_SECONDS = 86_400.0
_SHORT_GAP = 2
"""Steps: a shorter one is a failed scrape."""
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class RecordedState:
    """The objects of a recording, from `start` on."""

    url: str
    """Of Prometheus, without user and password."""
    start: float
    steps: int
    nodes: RecordedNodes
    pods: RecordedPodTable
    budgets: tuple[RecordedBudget, ...]
    alerts: tuple[RecordedAlert, ...]
    soft_taints: tuple[RecordedTaint, ...]
    gaps: tuple[Gap, ...]

    @property
    def end(self) -> float:
        """End of the last step."""
        return self.start + self.steps * STEP_SECONDS


def recorded_state(
    prometheus: Prometheus,
    today: ClusterSnapshot,
    *,
    start: float,
    end: float,
    pools: Callable[[Nodes], Sequence[str]],
    evicted: Collection[str] = (),
    progress: Progress,
    stopping: Callable[[], bool] = lambda: False,
) -> RecordedState:
    """Read the objects from `start` to `end`, both multiples of STEP_SECONDS. `pools` gives the pool of each node,
    `evicted` the UIDs of pods that rebalancer has evicted, as far as they are known.

    It begins later, and ends earlier, where Prometheus has nothing of kube-state-metrics. Raises ConnectError, and
    ConfigError where it has nothing at all.
    """
    pool = ClientPool(prometheus)
    try:
        asked = WindowReader(pool, Window(start, end), progress=progress, stopping=stopping)
        gaps: list[Gap] = []
        cluster = _cluster(asked, today, gaps)
        span = _known_span(asked, cluster, gaps, url=pool.url)
        reader = WindowReader(pool, span, progress=progress, stopping=stopping)
        state = KubeState(reader, cluster=cluster)
        steps = round((span.end - span.start) / STEP_SECONDS)
        nodes = recorded_nodes(state.nodes(), today.nodes, start=span.start, steps=steps)
        known = state.pods()
        _check(known, state, url=pool.url)
        pods = recorded_pods(known, state.parents(known), today, nodes=nodes.nodes.names, start=span.start, steps=steps)
        pods, of_evictions = _with_evictions(state, pods, nodes, pools(nodes.nodes), evicted, start=span.start)
        budgets, of_budgets = recorded_budgets(state.healthy(), today.budgets, start=span.start, steps=steps)
        alerts = recorded_alerts(state.alerts(), start=span.start)
        return RecordedState(
            url=pool.url,
            start=span.start,
            steps=steps,
            nodes=nodes,
            pods=pods,
            budgets=budgets,
            alerts=alerts,
            soft_taints=recorded_taints(state.soft_taints(), nodes.nodes.names, start=span.start),
            gaps=(*gaps, *nodes.gaps, *pods.gaps, *of_budgets, *of_evictions, *alert_gaps(alerts)),
        )
    finally:
        pool.close()


def _check(pods: PodHistory, state: KubeState, *, url: str) -> None:
    """Raises ConfigError where the pods can't be known."""
    where = f"usage.prometheus.url: {POD_INFO} of Prometheus at {url}"
    if state.is_relabelled:
        raise ConfigError(f"{where} has exported_pod: expected honorLabels: true where kube-state-metrics is scraped")
    if not pods.info:
        raise ConfigError(f"{where} has no series: expected the pod metrics of kube-state-metrics")
    if any(not uid for _, _, uid in pods.info):
        raise ConfigError(f"{where} has no uid: expected kube-state-metrics 2.0 or later")


def _with_evictions(
    state: KubeState,
    table: RecordedPodTable,
    nodes: RecordedNodes,
    pools: Sequence[str],
    evicted: Collection[str],
    *,
    start: float,
) -> tuple[RecordedPodTable, list[Gap]]:
    """The pods, with those that replaced one after an eviction by rebalancer."""
    series = state.evictions()
    rose, found = rises(series, start=start), replacements(table, nodes, start=start)
    known = {index for index, uid in enumerate(table.pods.uids) if uid in evicted}
    made = attributed(found, rose, [pools[int(table.pods.node[each.pod])] for each in found], evicted=known)
    replaced = table.pods.replaced.copy()
    for each in made:
        replaced[each.by] = each.pod
    gaps = eviction_gaps(found, rose, len(made), has_counter=bool(series or evicted))
    return replace(table, pods=replace(table.pods, replaced=replaced)), gaps


def _cluster(reader: WindowReader, today: ClusterSnapshot, gaps: list[Gap]) -> str:
    """The label of this cluster, where several share the Prometheus: the one with most of today's nodes."""
    found = reader.at(
        f"group by ({CLUSTER_LABEL}, node) (last_over_time({NODE_INFO}[{reader.span.promql}]))", reader.span.end
    )
    nodes: dict[str, set[str]] = defaultdict(set)
    for labels in found.labels:
        nodes[labels.get(CLUSTER_LABEL, "")].add(labels.get("node", ""))
    if len(nodes) < 2:
        return ""
    names = set(today.nodes.names)
    cluster = max(sorted(nodes), key=lambda name: len(nodes[name] & names))
    others = ", ".join(each or "none" for each in sorted(nodes) if each != cluster)
    ours = cluster or "that without one"
    gaps.append(
        Gap(
            f"Prometheus has other clusters, too (label {CLUSTER_LABEL}: {others}); this is {ours}, which "
            "has most of today's nodes: restrict the queries of the policy to it "
            "(docs/operations/metrics-at-scale.md)",
            0,
        )
    )
    return cluster


def _known_span(reader: WindowReader, cluster: str, gaps: list[Gap], *, url: str) -> Window:
    """The part of the span in which kube-state-metrics was scraped."""
    start, end = reader.span
    selector = f"{NODE_INFO}{{{any_of(CLUSTER_LABEL, [cluster])}}}" if cluster else NODE_INFO
    parts = reader.lines("Scrapes of kube-state-metrics", f"count({selector})", step=STEP_SECONDS, seconds=_DAY_SECONDS)
    known: Bools = np.zeros(round((end - start) / STEP_SECONDS), dtype=np.bool_)
    for _, values, begin in parts:
        first = round((begin - start) / STEP_SECONDS)
        known[first : first + values.shape[1]] |= np.isfinite(values).any(axis=0)
    if not known.any():
        raise ConfigError(
            f"usage.prometheus.url: Prometheus at {url} has no {NODE_INFO} since {clock_time(start)}: expected that it "
            "scrapes kube-state-metrics (kube-prometheus-stack installs it)"
        )
    first, last = int(np.argmax(known)), len(known) - int(np.argmax(known[::-1]))
    began, ended = start + first * STEP_SECONDS, start + last * STEP_SECONDS
    if first >= _SHORT_GAP:
        gaps.append(
            Gap(
                f"Prometheus has kube-state-metrics from {clock_time(began)} on only (is its retention shorter?): the "
                "recording begins there",
                0,
            )
        )
    else:
        began = start
    if len(known) - last >= _SHORT_GAP:
        gaps.append(Gap(f"kube-state-metrics isn't scraped since {clock_time(ended)}: the recording ends there", 0))
    else:
        ended = end
    holes = [hole for hole in spans(~known[first:last]) if hole[1] - hole[0] >= _SHORT_GAP]
    if holes:
        missing = [
            " to ".join(clock_time(start + (first + edge) * STEP_SECONDS) for edge in hole) for hole in holes[:_SHOWN]
        ]
        more = f" and {len(holes) - _SHOWN} more times" * (len(holes) > _SHOWN)
        gaps.append(
            Gap(f"kube-state-metrics wasn't scraped from {', '.join(missing)}{more}: what changed isn't known", 0)
        )
    return Window(began, ended)
