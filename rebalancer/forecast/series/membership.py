"""Assignment of pods to nodes, and of departed pods to services."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.notation.arrays import Ints
from rebalancer.policy.schema.forecast import Generation

SHORT_LIVED_KINDS = ("Job", "CronJob")
SHORT_LIVED_SECONDS = float(DAY_SECONDS)
"""An older pod of a Job counts as long-lived."""


class DepartedPod(NamedTuple):
    """A pod that has left a node. Its past usage is no part of the node's own usage."""

    pod: str
    """`namespace/name`"""
    node: str
    seen_at: float
    """Seconds since the epoch at which it was first missing or terminating."""


@dataclass(frozen=True, slots=True)
class PodNames(Sequence[str]):
    """`namespace/name` of pods, joined on access: a snapshot has both parts, and 150,000 joined names take 20 MiB."""

    namespaces: Sequence[str]
    namespace: Ints
    """(pods,) index into `namespaces`."""
    names: Sequence[str]
    """(pods,)"""

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "PodNames": ...

    def __getitem__(self, index: int | slice) -> "str | PodNames":
        if isinstance(index, slice):
            return PodNames(self.namespaces, self.namespace[index], self.names[index])
        return f"{self.namespaces[self.namespace[index]]}/{self.names[index]}"

    def __iter__(self) -> Iterator[str]:
        spaces = self.namespaces
        return (f"{spaces[at]}/{name}" for at, name in zip(self.namespace.tolist(), self.names, strict=True))


@dataclass(frozen=True, kw_only=True)
class Members:
    """Current pods, in the order of their nodes."""

    nodes: tuple[str, ...]
    capacity_millicores: NDArray[np.float64]
    """(nodes,) in units of day blocks, as all amounts."""
    factor: NDArray[np.float32]
    """(nodes,) work of one core relative to the cluster's reference machine."""
    pools: tuple[str, ...]
    pool: Ints
    """(nodes,) index into `pools`, -1 for a node in none."""
    pods: Sequence[str]
    """`namespace/name`, sorted by node."""
    node: Ints
    """(pods,) index into `nodes`, never falling."""
    service: Ints
    """(pods,) index into `services`, -1 for a bare pod."""
    services: tuple[str, ...]
    """`namespace/name` of the top owners."""
    short_lived_services: NDArray[np.bool_]
    """(services,) Jobs and CronJobs."""
    short_lived: NDArray[np.bool_]
    """(pods,) young pods of those services: no part of their node's forecast."""
    request_millicores: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """(pods,) requests; empty without a snapshot."""
    uids: Sequence[str] = ()
    """(pods,) empty without a snapshot."""
    departed: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """`namespace/name` of departed pods -> (index of their node, first step without them)."""
    departed_known: bool = False
    """Whether `departed` is complete for the last day."""
    resource: ForecastResource = OF_CPU

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Index of each pod."""
        return {name: index for index, name in enumerate(self.pods)}

    @cached_property
    def _service_index(self) -> Mapping[str, int]:
        return {name: index for index, name in reversed(tuple(enumerate(self.services)))}

    def service_named(self, name: str) -> int:
        """Index of a service; -1 if unknown."""
        return self._service_index.get(name, -1)

    def service_of_name(self, pod: str) -> int:
        """Index of the service of a pod `namespace/name`, by the naming rules of controllers; -1 if unknown.

        DaemonSets, Jobs and StatefulSets append one part to their name, Deployments and CronJobs two.
        """
        one = pod.rpartition("-")[0]
        found = self._service_index.get(one, -1)
        return found if found >= 0 else self._service_index.get(one.rpartition("-")[0], -1)


def leaving(snapshot: ClusterSnapshot) -> list[DepartedPod]:
    """Terminating pods."""
    pods, spaces, nodes = snapshot.pods, snapshot.namespaces, snapshot.nodes.names
    return [
        DepartedPod(f"{spaces[pods.namespace[index]]}/{pods.names[index]}", nodes[pods.node[index]], snapshot.taken)
        for index in np.flatnonzero(snapshot.active & pods.terminating).tolist()
    ]


def members_of(
    snapshot: ClusterSnapshot,
    *,
    pool_of: Ints,
    pools: Sequence[str],
    generation: Generation | None,
    now: float,
    departed: Sequence[DepartedPod] = (),
    departed_known: bool = False,
    resource: ForecastResource = OF_CPU,
) -> Members:
    """Members of a snapshot: bound pods, neither finished nor terminating. `pool_of` (nodes,) indexes `pools`."""
    chosen = np.flatnonzero(snapshot.active & ~snapshot.pods.terminating)
    chosen = chosen[np.argsort(snapshot.pods.node[chosen], kind="stable")]
    tops, service_index = np.unique(snapshot.top_owner, return_inverse=True)
    owner = snapshot.pods.owner[chosen]
    service = np.full(len(chosen), -1, dtype=np.int32)
    service[owner >= 0] = service_index[owner[owner >= 0]]
    short_lived = np.array([snapshot.owners[top].kind in SHORT_LIVED_KINDS for top in tops], dtype=np.bool_)
    spaces, names = snapshot.namespaces, snapshot.pods.names
    space = snapshot.pods.namespace[chosen]
    young = now - snapshot.pods.created[chosen] < SHORT_LIVED_SECONDS
    pods = PodNames(spaces, space, [names[index] for index in chosen.tolist()])
    left = {each.pod: snapshot.node_index.get(each.node, -1) for each in departed}
    again = {pod: index for pod, index in zip(pods, chosen.tolist(), strict=True) if pod in left}
    gone = {
        # a name is unique at a time: the departed pod was gone when the current one was created
        pod: (node, snapshot.pods.created[again[pod]] // STEP_SECONDS if pod in again else np.inf)
        for pod, node in left.items()
        # samples of a pod that returned to its node are its own
        if node >= 0 and (pod not in again or snapshot.pods.node[again[pod]] != node)
    }
    return Members(
        nodes=snapshot.nodes.names,
        capacity_millicores=resource.capacity(snapshot),
        factor=machine_factors(snapshot.nodes.labels, generation).astype(np.float32),
        pools=tuple(pools),
        pool=pool_of,
        pods=pods,
        node=snapshot.pods.node[chosen],
        service=service,
        services=tuple(f"{snapshot.owners[top].namespace}/{snapshot.owners[top].name}" for top in tops),
        short_lived_services=short_lived,
        short_lived=(service >= 0) & young & (short_lived[service] if len(short_lived) else False),
        request_millicores=resource.requested(snapshot)[chosen],
        resource=resource,
        uids=[snapshot.pods.uids[index] for index in chosen.tolist()],
        departed=gone,
        departed_known=departed_known,
    )


def machine_factors(labels: Sequence[Mapping[str, str]], generation: Generation | None) -> NDArray[np.float64]:
    """(nodes,) work of one core relative to the reference machine, from the nodes' `labels`."""
    if generation is None:
        return np.ones(len(labels))
    factors = generation.factors
    return np.array([factors.get(each.get(generation.label, ""), 1.0) for each in labels], dtype=np.float64)
