"""What the replacement of a pod looks like before it exists."""

import numpy as np

from rebalancer.model.snapshot import FAILED, SUCCEEDED, ClusterSnapshot


def newest_sibling(snapshot: ClusterSnapshot, pod: int) -> int:
    """Index of the newest pod of the same direct owner, which may be the pod itself.

    Its requests are those of the replacement: a vertical autoscaler changes them when a pod is created, and an in-place
    resize changes those of one pod only.
    """
    pods = snapshot.pods
    owner = int(pods.owner[pod])
    if owner < 0:
        return pod
    members = snapshot.pods_of(owner)
    alive = (pods.owner[members] == owner) & ~np.isin(pods.phase[members], (SUCCEEDED, FAILED))
    members = members[alive & ~pods.terminating[members]]
    if not len(members):
        return pod
    newest = members[pods.created[members] == pods.created[members].max()]
    # of pods of one second, any: the pod itself where it is among them
    return pod if pod in newest else min(newest.tolist(), key=lambda each: pods.names[each])
