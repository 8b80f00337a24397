"""Pods of nodes and services now, with the reason why each stays, and the search for nodes, pods and services."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import CycleReport, PodRefusal
from rebalancer.model.errors import UnsafeDataError
from rebalancer.planner.explain.soon import soon_of_node
from rebalancer.policy.pools import NodePools
from rebalancer.web.pages.views import NodeLine, PodNow, ServiceNow

MAX_FOUND = 50
"""Results of each kind."""
ADMISSION_SECONDS = 10.0
"""The compiled constraints of a snapshot are reused for so long: on a large cluster they take part of a second."""


class PodViews:
    """What the pages say about pods. For any thread; `done` is for the cycles' thread."""

    def __init__(
        self,
        current: Callable[[], Active],
        snapshot: Callable[[], ClusterSnapshot],
        millicores: Callable[[Sequence[str]], Sequence[float | None]],
    ) -> None:
        """`snapshot` raises UnsafeDataError. `millicores`: CPU of pods by UID, None where it isn't known."""
        self._current = current
        self._shared = snapshot
        self._millicores = millicores
        self._lock = threading.Lock()
        self._refusals: dict[str, tuple[float, Mapping[tuple[str, str], PodRefusal]]] = {}
        """Node -> (start of the last cycle that refused pods of it, its refusals by namespace and name)."""
        self._admission: tuple[float, ClusterSnapshot, EvictionAdmission, NodePools] | None = None

    def done(self, report: CycleReport) -> None:
        """Store the refusals of a finished cycle; the database has a few examples of each only."""
        by_node: dict[str, dict[tuple[str, str], PodRefusal]] = {}
        for each in report.refusals:
            if each.name:
                by_node.setdefault(each.node, {})[each.namespace, each.name] = each
        with self._lock:
            # a cycle for one node says nothing about another that is still hot
            hot = {node.name for node in report.nodes if node.hot}
            kept = {name: old for name, old in self._refusals.items() if name in hot or not report.nodes}
            self._refusals = {**kept, **{name: (report.started_at, found) for name, found in by_node.items()}}

    def of_node(self, name: str) -> tuple[PodNow, ...]:
        """Most CPU first; empty for an unknown node, and before the cluster was read."""
        snapshot = self._snapshot()
        node = None if snapshot is None else snapshot.node_index.get(name)
        if snapshot is None or node is None:
            return ()
        indices = [index for index in snapshot.pods_on(node).tolist() if snapshot.active[index]]
        found = self._described(snapshot, indices)
        return tuple(sorted(found, key=lambda each: (-(each.cpu_millicores or 0.0), each.full_name)))

    def of_service(self, name: str) -> tuple[PodNow, ...]:
        """By node; empty for an unknown service, and before the cluster was read."""
        snapshot = self._snapshot()
        if snapshot is None:
            return ()
        namespace, _, own = name.partition("/")
        tops = {
            int(snapshot.top_owner[index])
            for index, owner in enumerate(snapshot.owners)
            if owner.name == own and owner.namespace == namespace and int(snapshot.top_owner[index]) == index
        }
        indices = [index for top in sorted(tops) for index in snapshot.pods_of(top).tolist() if snapshot.active[index]]
        return tuple(sorted(self._described(snapshot, indices), key=lambda each: (each.node, each.full_name)))

    def services(self, nodes: Iterable[str], names: Collection[str]) -> Mapping[str, str]:
        """`namespace/name` of those pods that are on the nodes -> that of its service; without owner, none."""
        snapshot = self._snapshot()
        if snapshot is None:
            return {}
        out = {}
        for node in nodes:
            index = snapshot.node_index.get(node)
            for pod in () if index is None else snapshot.pods_on(index).tolist():
                plain = self._plain(snapshot, pod)
                if plain.service and plain.full_name in names:
                    out[plain.full_name] = plain.service
        return out

    def soon(self, node: str) -> tuple[str, ...]:
        """What differs on the node in the next minutes, in sentences."""
        snapshot = self._snapshot()
        if snapshot is None or node not in snapshot.node_index:
            return ()
        admission, _ = self._constraints(snapshot)
        return tuple(soon_of_node(admission.projection, snapshot.node_index[node]))

    # -- search -------------------------------------------------------------------------------------------------------

    def search(self, text: str) -> tuple[Sequence[PodNow], int, Sequence[ServiceNow], int]:
        """(pods, number of further pods, services, number of further services) whose `namespace/name` contains it."""
        snapshot = self._snapshot()
        if snapshot is None:
            return (), 0, (), 0
        pods, wanted = snapshot.pods, text.lower()
        spaces = snapshot.namespaces
        names = (f"{spaces[space]}/{name}" for space, name in zip(pods.namespace.tolist(), pods.names, strict=True))
        hits = sorted((_rank(name, wanted), index) for index, name in enumerate(names) if wanted in name.lower())
        services = {}
        for index, owner in enumerate(snapshot.owners):
            name = f"{owner.namespace}/{owner.name}"
            if owner.kind != "Node" and int(snapshot.top_owner[index]) == index and wanted in name.lower():
                services[_rank(name, wanted), index] = ServiceNow(name=name, kind=owner.kind, pods=0)
        shown = [
            replace(services[key], pods=int(snapshot.active[snapshot.pods_of(key[1])].sum()))
            for key in sorted(services)[:MAX_FOUND]
        ]
        found = [self._plain(snapshot, index) for _, index in hits[:MAX_FOUND]]
        return found, max(len(hits) - MAX_FOUND, 0), shown, max(len(services) - MAX_FOUND, 0)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> ClusterSnapshot | None:
        try:
            return self._shared()
        except UnsafeDataError:
            return None

    def _plain(self, snapshot: ClusterSnapshot, index: int) -> PodNow:
        pods, node = snapshot.pods, int(snapshot.pods.node[index])
        return PodNow(
            namespace=snapshot.namespaces[int(pods.namespace[index])],
            name=pods.names[index],
            node=snapshot.nodes.names[node] if node >= 0 else "",
            service=str(snapshot.service_of(int(pods.owner[index])) or ""),
            cpu_request_millicores=float(pods.cpu_request_millicores[index]),
            created=float(pods.created[index]),
        )

    def _described(self, snapshot: ClusterSnapshot, indices: Sequence[int]) -> Iterable[PodNow]:
        admission, pools = self._constraints(snapshot)
        with self._lock:
            refusals = self._refusals
        used = self._millicores([snapshot.pods.uids[index] for index in indices])
        for index, cpu in zip(indices, used, strict=True):
            pod, plain = snapshot.pod(index), self._plain(snapshot, index)
            capacity = float(snapshot.nodes.cpu_capacity_millicores[pod.node])
            stays = admission.stays(pod, pool=pools.by_node.get(plain.node, ""))
            at, of_node = refusals.get(plain.node, (None, {}))
            refused = of_node.get((plain.namespace, plain.name))
            why = stays or refused
            yield replace(
                plain,
                cpu_millicores=cpu,
                cpu_share=cpu / capacity if cpu is not None and capacity else None,
                code=why.code.value if why is not None else "",
                message=why.message if why is not None else "",
                refused_at=at if stays is None and refused is not None else None,
            )

    def _constraints(self, snapshot: ClusterSnapshot) -> tuple[EvictionAdmission, NodePools]:
        """Guards, lists, levels and change windows as of now; nothing of the ledger."""
        with self._lock:
            made = self._admission
        # of this snapshot only: it goes by the indices of pods and nodes
        if made is None or made[1] is not snapshot or time.monotonic() - made[0] >= ADMISSION_SECONDS:
            current = self._current()
            pools = NodePools.of(current.policy.pools, snapshot.nodes)
            admission = EvictionAdmission(
                policy=current.policy,
                snapshot=snapshot,
                pool_of=pools.of_node,
                ledger_state=LedgerState(),
                now=current.context.clock.now(),
                own_pod=current.context.own_pod,
            )
            made = (time.monotonic(), snapshot, admission, pools)
            with self._lock:
                self._admission = made
        return made[2], made[3]


def found_nodes(lines: Iterable[NodeLine], text: str) -> list[NodeLine]:
    """Nodes whose name contains the text, exact names and beginnings first."""
    wanted = text.lower()
    return sorted((each for each in lines if wanted in each.name.lower()), key=lambda each: _rank(each.name, wanted))


def _rank(name: str, wanted: str) -> tuple[int, str]:
    low = name.lower()
    short = low.rpartition("/")[2]
    return (0 if wanted in (low, short) else 1 if low.startswith(wanted) or short.startswith(wanted) else 2), low
