"""What the replacements of pods look like before they exist."""

import numpy as np

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Ints

AT_ONCE = ("ReplicaSet", "ReplicationController")
"""Owners whose pods are all alike: the replacement is as the newest of them."""


IN_PLACE = ("DaemonSet", "Node", "Pod")
"""Kinds of owners whose pods are not replaced on another node."""


def is_recreated(owner: Owner) -> bool:
    """Whether a pod of the owner that goes has a replacement."""
    return owner.kind not in IN_PLACE and not owner.finished


def newest_siblings(snapshot: ClusterSnapshot) -> Ints:
    """(pods,) index of the newest pod of the same direct owner where that one requests other CPU or memory, else the
    pod itself.

    Its requests are those of the replacement: a vertical autoscaler changes them when a pod is created, and an in-place
    resize changes those of one pod only.
    """
    pods, count = snapshot.pods, len(snapshot.owners)
    out = np.arange(len(pods), dtype=np.int32)
    finished = (pods.phase == SUCCEEDED) | (pods.phase == FAILED)
    rows = np.flatnonzero((pods.owner >= 0) & ~pods.terminating & ~finished)
    owner = pods.owner[rows]
    mixed = np.zeros(count + 1, dtype=np.bool_)  # -1, without an owner, selects the last
    cpu, memory = requests = (pods.cpu_request_millicores, pods.memory_request_bytes)
    for column in requests:
        least, most = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(least, owner, column[rows])
        np.maximum.at(most, owner, column[rows])
        mixed[:-1] |= most > least
    if not mixed.any():
        return out
    several = rows[mixed[owner]]
    # of pods of one second the one that requests most, then by name: the order of the list changes nothing
    names = np.argsort(np.argsort(np.array([pods.names[pod] for pod in several.tolist()])))
    keys = (names, memory[several], cpu[several], pods.created[several], pods.owner[several])
    order = several[np.lexsort(keys)]
    newest = np.full(count + 1, -1, dtype=np.int32)
    newest[pods.owner[order]] = order  # the last of each owner
    like = newest[pods.owner]
    differs = np.logical_or.reduce([column[like] != column for column in requests])
    # one that is as new was created alike
    other = (like >= 0) & differs & (pods.created[like] > pods.created)
    out[other] = like[other]
    return out
