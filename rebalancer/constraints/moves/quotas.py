"""ResourceQuotas: whether those of a namespace admit a replacement, with the moves of the plan counted."""

from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.quota import ResourceQuota, quota_use
from rebalancer.model.cluster.replacement import newest_siblings
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal

MADE_AFTERWARDS = ("StatefulSet", "Job")
"""Owners whose replacement is created when the evicted pod is gone: it takes the place of that one. All others create
it while the evicted pod, which a quota counts until it is gone, still terminates."""
ROUNDING = 1e-6


class QuotaRoom:
    """What is left of the quotas. Not thread-safe; one for each plan."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._like = newest_siblings(snapshot) if snapshot.quotas else None
        self._quotas: dict[str, list[tuple[ResourceQuota, dict[str, float]]]] = {}
        for quota in snapshot.quotas:
            self._quotas.setdefault(quota.namespace, []).append((quota, dict(quota.free)))

    def refuses(self, pod: int) -> Refusal | None:
        """Why a quota would refuse the replacement of this pod (an index), or None."""
        for quota, free, uses in self._counting(pod):
            for resource, use in uses.items():
                if use > 0 and use > free[resource] + ROUNDING:
                    left = max(free[resource], 0.0)
                    return Refusal.of(
                        Reason.QUOTA_EXCEEDED, f"{quota.name} has {left:g} of {resource} left, {use:g} are needed"
                    )
        return None

    def count(self, pod: int, by: int = 1) -> None:
        """Count the eviction of this pod, or with -1 that it did not happen."""
        for _, free, uses in self._counting(pod):
            for resource, use in uses.items():
                free[resource] -= by * use

    def _counting(self, pod: int) -> list[tuple[ResourceQuota, dict[str, float], dict[str, float]]]:
        """The quotas that count the replacement: what is left of each, and what the replacement needs of it."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        quotas = self._quotas.get(snapshot.namespaces[pods.namespace[pod]], ())
        # a finished pod has no replacement
        if self._like is None or not quotas or pods.phase[pod] in (SUCCEEDED, FAILED):
            return []
        old = snapshot.pod_templates[int(pods.template[pod])]
        new = snapshot.pod_templates[int(pods.template[self._like[pod]])]
        owner = int(pods.owner[pod])
        afterwards = owner >= 0 and snapshot.owners[owner].kind in MADE_AFTERWARDS
        return [
            (
                quota,
                free,
                {name: quota_use(name, new) - (quota_use(name, old) if afterwards else 0.0) for name in free},
            )
            for quota, free in quotas
            if quota.counts(new)
        ]
