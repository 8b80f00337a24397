"""The simulated cluster as the snapshot that a cycle reads, and as the one that the scheduler's model reads."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import PENDING, RUNNING, Pods, PodStatus, requested
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.cluster.steering import SOFT_TAINT, UNSCHEDULABLE
from rebalancer.model.recordings.recording import Recording, is_passing
from rebalancer.replay.simulation.loads import Loads, Wide
from rebalancer.replay.simulation.state import ClusterState

SOFT = "PreferNoSchedule"
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
REFUSED_AFTER_SECONDS = 2.0
"""A pod without a node counts as unschedulable from then on."""


class Snapshots:
    """Makes snapshots of one simulated cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        recording = self._recording = state.recording
        self._requests = requested(map(recording.pod_templates.__getitem__, range(len(recording.pod_templates))))
        self._pairs = _budget_pairs(recording, state.loads)
        self._owners = list(recording.owners)
        self._counted = np.full((len(recording.owners), 3), -1, dtype=np.int64)
        self._parents = np.array([each.parent for each in recording.owners], dtype=np.int64)
        self._nodes: tuple[int, Nodes] | None = None
        self._last: tuple[tuple[object, ...], ClusterSnapshot] | None = None
        self._namespace_labels: Mapping[str, Mapping[str, str]] = {
            **{name: {} for name in recording.namespaces},
            **recording.today.namespace_labels,
        }

    def now(self) -> ClusterSnapshot:
        """The cluster now."""
        state = self._state
        key = state.pods.version, state.nodes.version, state.step, bool(state.waiting)
        if self._last is not None and self._last[0] == key and not state.waiting:
            return replace(self._last[1], taken=state.now)
        loads, pods = self._pods(np.zeros(0, dtype=np.int64))
        found = self._snapshot(pods, owners=self._owners_of(pods), budgets=self._budgets(loads, pods))
        self._last = key, found
        return found

    def for_scheduler(self, coming: Wide) -> ClusterSnapshot:
        """The same without budgets, and with a pod of each of these loads that waits for a node."""
        _, pods = self._pods(coming)
        return self._snapshot(pods, owners=self._recording.owners, budgets=())

    def _snapshot(
        self, pods: Pods, *, owners: tuple[Owner, ...], budgets: tuple[DisruptionBudget, ...]
    ) -> ClusterSnapshot:
        recording = self._recording
        return replace(
            recording.today,
            taken=self._state.now,
            nodes=self._nodes_now(),
            pods=pods,
            pod_templates=recording.pod_templates,
            namespaces=recording.namespaces,
            namespace_labels=self._namespace_labels,
            owners=owners,
            budgets=budgets,
            statuses=(PodStatus(),),
            listed_kinds=frozenset(),
            volume_limits={},
        )

    def _pods(self, coming: Wide) -> tuple[Wide, Pods]:
        """The loads of the pods, and the pods."""
        state, recording, extra = self._state, self._recording, len(coming)
        rows, columns = state.pods.alive(), state.pods
        place = np.full(len(recording.nodes) + 1, -1, dtype=np.int32)
        place[: len(recording.nodes)][state.nodes.there] = np.arange(
            np.count_nonzero(state.nodes.there), dtype=np.int32
        )
        loads = np.concatenate([columns.load[rows], coming])
        node = np.concatenate([place[columns.node[rows]], np.full(extra, -1, dtype=np.int32)])
        created = np.concatenate([columns.created[rows], np.full(extra, state.now)])
        bound = np.concatenate([columns.bound[rows], np.full(extra, np.inf)])
        going = np.concatenate([columns.going_at[rows] <= state.now, np.zeros(extra, dtype=np.bool_)])
        ready = np.concatenate([columns.ready_at[rows] <= state.now, np.zeros(extra, dtype=np.bool_)])
        recorded = state.loads.pod[loads]
        template = recording.pods.template[recorded]
        numbers = rows.tolist()
        pods = replace(
            Pods.blank(len(loads)),
            names=[*(columns.names[row] for row in numbers), *[""] * extra],
            uids=[*(columns.uids[row] for row in numbers), *[""] * extra],
            namespace=recording.pods.namespace[recorded],
            node=node,
            owner=recording.pods.owner[recorded],
            template=template,
            phase=np.where(node >= 0, RUNNING, PENDING).astype(np.int8),
            ready=ready & ~going & (node >= 0),
            terminating=going,
            created=created,
            started=np.where(np.isfinite(bound), bound, np.nan),
            priority=recording.pods.priority[recorded],
            **{name: column[template] for name, column in self._requests.items()},
            unschedulable=(node < 0) & (state.now - created > REFUSED_AFTER_SECONDS),
        )
        return loads, pods

    # ---- nodes

    def _nodes_now(self) -> Nodes:
        state = self._state
        if self._nodes is None or self._nodes[0] != state.nodes.version:
            self._nodes = (state.nodes.version, self._nodes_at(np.flatnonzero(state.nodes.there)))
        return self._nodes[1]

    def _nodes_at(self, there: Wide) -> Nodes:
        state, nodes = self._state, self._recording.nodes
        ours = [node in state.nodes.taints and state.nodes.taints[node][2] for node in there.tolist()]
        cordoned = state.nodes.cordoned[there] | np.array(ours, dtype=np.bool_)
        ready = state.nodes.ready[there]
        states = zip(there.tolist(), cordoned.tolist(), ready.tolist(), strict=True)
        return replace(
            nodes.take(there),
            ready=ready,
            unschedulable=cordoned,
            taints=tuple(self._taints_of(row, cordoned=shut, ready=up) for row, shut, up in states),
        )

    def _taints_of(self, node: int, *, cordoned: bool, ready: bool) -> tuple[Taint, ...]:
        """Those of today without what depends on the time, and what its condition and we have set."""
        own = [each for each in self._recording.nodes.taints[node] if not is_passing(each.key)]
        own += [UNSCHEDULABLE] if cordoned else []
        own += [] if ready else [NOT_READY]
        if (ours := self._state.nodes.taints.get(node)) is not None:
            value, since, _ = ours
            added = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            own.append(Taint(key=SOFT_TAINT, value=value, effect=SOFT, time_added=added))
        return tuple(own)

    # ---- owners and budgets

    def _owners_of(self, pods: Pods) -> tuple[Owner, ...]:
        """The owners with their replicas now: as many are desired as have a load."""
        count = len(self._owners)
        ready = np.bincount(pods.owner[pods.ready & (pods.owner >= 0)], minlength=count).astype(np.int64)
        # one for each load: an evicted pod and its replacement are there at once
        loads = np.unique(self._state.pods.load[self._state.pods.alive()])
        owner = self._recording.pods.owner[self._state.loads.pod[loads]]
        wanted = np.bincount(owner[owner >= 0], minlength=count).astype(np.int64)
        below = np.flatnonzero(self._parents >= 0)
        parents = self._parents[below]

        def with_children(column: Wide) -> Wide:
            sums = np.bincount(parents, weights=column[below], minlength=count)
            return column + sums.astype(np.int64)

        children = np.bincount(parents, weights=wanted[below] > 0, minlength=count)
        total, all_ready = with_children(wanted), with_children(ready)
        figures = np.column_stack([total, all_ready, children > 1])
        for at in np.flatnonzero((figures != self._counted).any(axis=1)).tolist():
            desired, up, rolling = (int(value) for value in figures[at])
            kind = self._recording.owners[at].kind
            self._owners[at] = replace(
                self._recording.owners[at],
                desired=desired,
                ready=up,
                rolling_out=bool(rolling) and kind == "Deployment",
            )
        self._counted = figures
        return tuple(self._owners)

    def _budgets(self, loads: Wide, pods: Pods) -> tuple[DisruptionBudget, ...]:
        """The budgets that were there, with their status now."""
        state, budgets = self._state, self._recording.budgets
        healthy = self.healthy(loads[pods.ready])
        out = []
        for at, each in enumerate(budgets):
            if each.since <= state.now < each.until:
                desired = int(each.desired_healthy[state.step])
                out.append(
                    DisruptionBudget(
                        namespace=each.namespace,
                        name=each.name,
                        selector=each.selector,
                        disruptions_allowed=max(int(healthy[at]) - desired, 0),
                        current_healthy=int(healthy[at]),
                        desired_healthy=desired,
                        evicts_unhealthy=each.evicts_unhealthy,
                    )
                )
        return tuple(out)

    def healthy(self, ready_loads: Wide) -> Wide:
        """(budgets,) Ready pods that each selects."""
        is_ready = np.zeros(len(self._state.loads), dtype=np.bool_)
        is_ready[ready_loads] = True
        budget, load = self._pairs
        counts: Wide = np.bincount(budget[is_ready[load]], minlength=len(self._recording.budgets)).astype(np.int64)
        return counts

    def budgets_of(self, load: int) -> Wide:
        """Budgets that select a load's pods."""
        budget, of_load = self._pairs
        found: Wide = budget[of_load == load]
        return found


def _budget_pairs(recording: Recording, loads: Loads) -> tuple[Wide, NDArray[np.int64]]:
    """Pairs of budget and load that it selects."""
    template, namespace = recording.pods.template[loads.pod], recording.pods.namespace[loads.pod]
    budgets: list[Wide] = [np.zeros(0, dtype=np.int64)]
    selected: list[Wide] = [np.zeros(0, dtype=np.int64)]
    number = {name: at for at, name in enumerate(recording.namespaces)}
    for at, budget in enumerate(recording.budgets):
        if budget.selector is None or budget.namespace not in number:
            continue
        inside = np.flatnonzero(namespace == number[budget.namespace])
        matches = {
            each: selector_matches(budget.selector, recording.pod_templates[each].labels)
            for each in np.unique(template[inside]).tolist()
        }
        found = inside[[matches[each] for each in template[inside].tolist()]] if len(inside) else inside
        budgets.append(np.full(len(found), at, dtype=np.int64))
        selected.append(found.astype(np.int64))
    return np.concatenate(budgets), np.concatenate(selected)
