"""Who is on which node now, and which service a pod of the past belonged to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.schema.forecast import Generation

Ints = NDArray[np.int32]
SHORT_LIVED_KINDS = ("Job", "CronJob")
SHORT_LIVED_SECONDS = float(DAY_SECONDS)
"""A Job's pod that is older is a pod like any other."""


class DepartedPod(NamedTuple):
    """A pod that was on a node and no longer is: what it used there is not the node's own."""

    pod: str
    """`namespace/name`"""
    node: str
    seen_at: float
    """Seconds since the epoch: when it was first seen to be gone, or on its way out."""


@dataclass(frozen=True, kw_only=True)
class Members:
    """The pods by node, in the order of their nodes."""

    nodes: tuple[str, ...]
    capacity_millicores: NDArray[np.float64]
    """(nodes,)"""
    factor: NDArray[np.float32]
    """(nodes,) work that one core does, against the cluster's reference machine."""
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
    crowd: NDArray[np.bool_]
    """(services,) those whose pods come and go within the day: Jobs and CronJobs."""
    short_lived: NDArray[np.bool_]
    """(pods,) pods of those services: they say nothing about their node."""
    uids: Sequence[str] = ()
    """(pods,) where they come from a snapshot."""
    departed: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """`namespace/name` of pods that left -> index of the node that they were on, and the step they were gone by."""
    departed_known: bool = False
    """Whether nobody else left lately."""

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Index of each pod."""
        return {name: index for index, name in enumerate(self.pods)}

    @cached_property
    def _service_index(self) -> Mapping[str, int]:
        return {name: index for index, name in reversed(tuple(enumerate(self.services)))}

    def service_named(self, name: str) -> int:
        """Index of a service; -1 for one that nobody knows."""
        return self._service_index.get(name, -1)

    def service_of_name(self, pod: str) -> int:
        """The service that a pod of this `namespace/name` belonged to, by how controllers name their pods; -1 if none.

        DaemonSets, Jobs and StatefulSets add one part to their own name, Deployments and CronJobs two.
        """
        one = pod.rpartition("-")[0]
        found = self._service_index.get(one, -1)
        return found if found >= 0 else self._service_index.get(one.rpartition("-")[0], -1)


def leaving(snapshot: ClusterSnapshot) -> list[DepartedPod]:
    """The pods that are on their way out."""
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
) -> Members:
    """The members of a snapshot: bound, not finished, not on their way out. `pool_of` (nodes,) indexes `pools`."""
    chosen = np.flatnonzero(snapshot.active & ~snapshot.pods.terminating)
    chosen = chosen[np.argsort(snapshot.pods.node[chosen], kind="stable")]
    tops, service_index = np.unique(snapshot.top_owner, return_inverse=True)
    owner = snapshot.pods.owner[chosen]
    service = np.full(len(chosen), -1, dtype=np.int32)
    service[owner >= 0] = service_index[owner[owner >= 0]]
    crowd = np.array([snapshot.owners[top].kind in SHORT_LIVED_KINDS for top in tops], dtype=np.bool_)
    spaces, names = snapshot.namespaces, snapshot.pods.names
    space = snapshot.pods.namespace[chosen]
    young = now - snapshot.pods.created[chosen] < SHORT_LIVED_SECONDS
    pods = [f"{spaces[number]}/{names[index]}" for number, index in zip(space.tolist(), chosen.tolist(), strict=True)]
    left = {each.pod: snapshot.node_index.get(each.node, -1) for each in departed}
    again = {pod: index for pod, index in zip(pods, chosen.tolist(), strict=True) if pod in left}
    gone = {
        # of one name there is one at a time: when the present one came, the other was gone
        pod: (node, snapshot.pods.created[again[pod]] // STEP_SECONDS if pod in again else np.inf)
        for pod, node in left.items()
        # one that came back brings its samples from there as its own
        if node >= 0 and (pod not in again or snapshot.pods.node[again[pod]] != node)
    }
    return Members(
        nodes=snapshot.nodes.names,
        capacity_millicores=snapshot.nodes.cpu_capacity_millicores,
        factor=_factors(snapshot.nodes.labels, generation),
        pools=tuple(pools),
        pool=pool_of,
        pods=pods,
        node=snapshot.pods.node[chosen],
        service=service,
        services=tuple(f"{snapshot.owners[top].namespace}/{snapshot.owners[top].name}" for top in tops),
        crowd=crowd,
        short_lived=(service >= 0) & young & (crowd[service] if len(crowd) else False),
        uids=[snapshot.pods.uids[index] for index in chosen.tolist()],
        departed=gone,
        departed_known=departed_known,
    )


def _factors(labels: Sequence[Mapping[str, str]], generation: Generation | None) -> NDArray[np.float32]:
    if generation is None:
        return np.ones(len(labels), dtype=np.float32)
    factors = generation.factors
    return np.array([factors.get(each.get(generation.label, ""), 1.0) for each in labels], dtype=np.float32)
