"""Replacement first: which pods are moved by it, and why one can't be.

The policy chooses the pods. It is used only where an eviction would leave the service without the pods that it needs:
it has one replica, fewer than `guards.minReplicas`, or a PodDisruptionBudget that allows no disruption at its size. It
is no disruption: a budget isn't used, for the service has as many Ready pods all the time.
"""

from collections.abc import Sequence

from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.constraints.pods.levels import level_of
from rebalancer.constraints.pods.lists import glob_matches, matches
from rebalancer.model.cluster.annotations import DELETION_COST, LOWEST_COST
from rebalancer.model.cluster.owners import RUN_ONCE_KINDS
from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.projection.projection import Projection


class ReplacementFirst:
    """See the module."""

    def __init__(self, policy: RebalancerPolicy, projection: Projection, pools: Sequence[str]) -> None:
        """`pools` (nodes,) names; empty for none."""
        self._policy, self._snapshot, self._pools = policy, projection.snapshot, pools
        self._budgets = BudgetRoom(projection) if policy.guards.replacement_first else None
        guards = policy.guards
        own = [each.min_replicas for each in guards.overrides if each.min_replicas is not None]
        self._least = max(guards.min_replicas, 2, *own)
        """Services with fewer replicas are moved in no other way."""
        self._known: dict[int, bool] = {}

    def applies(self, pod: Pod) -> bool:
        """Whether the pod is moved by replacement first, if at all. A pod that is not Ready,
        or of a Job, has no requests to lose: its eviction is one like any other."""
        if self._budgets is None or not pod.ready or pod.service is None or pod.service.kind in RUN_ONCE_KINDS:
            return False
        if pod.index not in self._known:
            self._known[pod.index] = self._chosen(pod) and self._needed(pod)
        return self._known[pod.index]

    def _chosen(self, pod: Pod) -> bool:
        level, cluster = level_of(pod, self._policy.service_levels), self._policy.cluster
        name, pool = "" if isinstance(level, Refusal) else level, self._pools[pod.node] if pod.node >= 0 else ""
        return any(
            matches(rule, pod, cluster=cluster, pool=pool) and glob_matches(rule.levels, name)
            for rule in self._policy.guards.replacement_first
        )

    def _needed(self, pod: Pod) -> bool:
        desired, _ = self._snapshot.replicas(int(self._snapshot.pods.owner[pod.index]))
        if desired < self._least:
            return True
        assert self._budgets is not None
        return any(each.disruptions_allowed == 0 and each.desired_healthy >= desired for each in self._budgets.of(pod))

    def refuses(self, pod: Pod) -> Refusal | None:
        """Why a pod that it applies to can't be moved by it, as far as the snapshot shows."""
        snapshot, service = self._snapshot, pod.service
        if service is None or service.kind != "Deployment" or pod.owner is None or pod.owner.kind != "ReplicaSet":
            return Refusal.of(Reason.SURGE_OWNER, "" if service is None else f"{service} is a {service.kind}")
        top = snapshot.owners[int(snapshot.top_owner[snapshot.pods.owner[pod.index]])]
        if top.recreates:
            return Refusal.of(Reason.SURGE_STRATEGY, str(service))
        if top.paused:
            return Refusal.of(Reason.SURGE_PAUSED, str(service))
        for volume in pod.template.volumes:
            name = str((volume.persistent_volume_claim or {}).get("claimName", ""))
            if name and (pod.namespace, name) in snapshot.one_node_claims | snapshot.exclusive_claims:
                return Refusal.of(Reason.SURGE_VOLUME, name)
        if pod.template.host_ports:
            return Refusal.of(Reason.SURGE_HOST_PORT, ", ".join(str(port) for _, port, _ in pod.template.host_ports))
        if (scaler := snapshot.autoscaler_of(service)) is not None:
            return Refusal.of(Reason.SURGE_AUTOSCALER, scaler.name)
        for index in snapshot.pods_of(int(snapshot.pods.owner[pod.index])).tolist():
            if snapshot.pods.terminating[index]:
                continue  # no ReplicaSet chooses it again
            other = snapshot.pod(index)
            # the lowest is that of a surge in progress, and asked about again before one begins
            if (cost := other.template.annotations.get(DELETION_COST, LOWEST_COST)) != LOWEST_COST:
                return Refusal.of(Reason.SURGE_DELETION_COST, f"{other.name} has {cost}")
        return None
