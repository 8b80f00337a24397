"""Our own taint on nodes, and nobody else's.

A node's taints are one list that is written as a whole, so each write carries the resourceVersion that was read: when
anybody changed the node in between, the server answers 409 and we read it again.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rebalancer.kube.client import ApiClient, Retries, Timeouts
from rebalancer.kube.probe import TAINT_PERMISSIONS, can_i
from rebalancer.kube.records import TaintedNode
from rebalancer.kube.snapshot import NODES
from rebalancer.kube.times import rfc3339
from rebalancer.model.errors import ConnectError, RebalancerError, UnsafeDataError
from rebalancer.model.ports import Clock
from rebalancer.model.steering import STEERING_TAINT

EFFECT = "PreferNoSchedule"
MERGE_PATCH = "application/merge-patch+json"
CONFLICT_RETRIES = 5
BACKOFF_SECONDS = 0.05
# Short: a whole list of nodes may have to be gone through while the lease runs.
TIMEOUTS = Timeouts(connect_seconds=2.0, read_seconds=4.0)
RETRIES = Retries(attempts=2, longest_wait_seconds=1.0, total_seconds=2.0)

Taint = dict[str, Any]


class KubeNodeTaints:
    """Implements `model.ports.NodeTaints`. `clock` dates the taint; `pause` waits between two tries, in real time.

    After a lost answer the node may be changed all the same: that counts as not done, and the next snapshot shows it.
    """

    def __init__(self, *, client: ApiClient, clock: Clock, pause: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._clock = clock
        self._pause = pause

    def granted(self) -> bool:
        """Whether we may read and patch nodes; False where the server can't tell. Raises ConnectError."""
        try:
            return all(can_i(self._client, permission) for permission in TAINT_PERMISSIONS)
        except UnsafeDataError as error:
            raise ConnectError(str(error)) from None

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node, or change the value; False when that could not be done. Never raises."""
        ours = {"key": STEERING_TAINT, "value": value, "effect": EFFECT, "timeAdded": rfc3339(self._clock.now())}
        return self._change(node, lambda taints: _with(taints, ours), when_gone=False)

    def take(self, node: str) -> bool:
        """Remove our taint; True when it is gone, also when the node is. False when that could not be done."""
        return self._change(node, lambda taints: [each for each in taints if not _is_ours(each)], when_gone=True)

    def _change(self, node: str, change: Callable[[list[Taint]], list[Taint]], *, when_gone: bool) -> bool:
        path = NODES.path(name=node)
        try:
            for attempt in range(1 + CONFLICT_RETRIES):
                if attempt:
                    self._pause(BACKOFF_SECONDS * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5))
                found = self._client.read(
                    path, TaintedNode, verb="get", resource=NODES.rbac_name, timeouts=TIMEOUTS, retries=RETRIES
                )
                if found is None:
                    return when_gone
                before = found.spec.taints or []
                after = change(before)
                if after == before:
                    return True
                status = self._patch(path, after, found.metadata.resource_version)
                if status != 409:
                    return when_gone if status == 404 else status == 200
        except RebalancerError:
            return False
        return False

    def _patch(self, path: str, taints: list[Taint], version: str) -> int:
        body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}})
        return self._client.send("PATCH", path, body, content_type=MERGE_PATCH, timeouts=TIMEOUTS).status


def _with(taints: Sequence[Taint], ours: Taint) -> list[Taint]:
    """The taints with ours in its old place, or at the end; as they were where ours says the same already."""
    old = next((each for each in taints if _is_ours(each)), None)
    if old is None:
        return [*taints, ours]
    if old.get("value", "") == ours["value"]:
        return list(taints)
    return [ours if each is old else each for each in taints]


def _is_ours(taint: Taint) -> bool:
    return taint.get("key") == STEERING_TAINT and taint.get("effect") == EFFECT
