"""The rebalancer's own taint and cordon on nodes.

A node's taints are one list that is written as a whole, so each write carries the resourceVersion that was read: on a
concurrent change the server answers 409 and the node is read again. A cordon of ours is `spec.unschedulable` together
with our taint, whose value names it; both are written in one patch. The taint `node.kubernetes.io/unschedulable` that
follows a cordon is maintained by the node controller.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import tenacity

from rebalancer.kube.client.client import ApiClient, Retries, Timeouts, growing_wait
from rebalancer.kube.client.permissions import Permission, can_i
from rebalancer.kube.snapshot.records import VersionMeta, Wire
from rebalancer.kube.snapshot.snapshot import NODES
from rebalancer.kube.snapshot.times import rfc3339
from rebalancer.model.cluster.steering import CORDONS, SOFT_TAINT
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConnectError, RebalancerError, UnsafeDataError

EFFECT = "PreferNoSchedule"
MERGE_PATCH = "application/merge-patch+json"
CONFLICT_RETRIES = 5
BACKOFF_SECONDS = 0.05
# Short: a long list of nodes may have to be changed while the lease runs.
TIMEOUTS = Timeouts(connect_seconds=2.0, read_seconds=4.0)
RETRIES = Retries(attempts=2, longest_wait_seconds=1.0, total_seconds=2.0)

Taint = dict[str, Any]

TAINT_PERMISSIONS = tuple(Permission(verb=verb, group=NODES.group, resource=NODES.plural) for verb in ("get", "patch"))
"""Permissions to change a node's taints."""


class WholeTaints(Wire, frozen=True):
    # Every field of every taint, known or not: they are written back.
    taints: list[dict[str, Any]] | None = None
    unschedulable: bool = False


class TaintedNode(Wire, frozen=True):
    """A node as it is read to change its taints or its cordon."""

    metadata: VersionMeta
    spec: WholeTaints = WholeTaints()


class _State(NamedTuple):
    """The part of a node that is written."""

    taints: list[Taint]
    cordoned: bool

    @property
    def ours(self) -> Taint | None:
        return next((each for each in self.taints if _is_ours(each)), None)

    @property
    def cordoned_by_us(self) -> bool:
        return self.cordoned and self.ours is not None and self.ours.get("value", "") in CORDONS


class KubeNodeTaints:
    """Implements `model.decisions.ports.NodeTaints`. `clock` dates the taint; `pause` waits between attempts, in real
    time.

    After a lost answer the node may have changed: that counts as failed, and the next snapshot shows it.
    """

    def __init__(self, *, client: ApiClient, clock: Clock, pause: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._clock = clock
        self._pause = pause

    def granted(self) -> bool:
        """Whether nodes may be read and patched; False where the server has no access reviews. Raises ConnectError."""
        try:
            return all(can_i(self._client, permission) for permission in TAINT_PERMISSIONS)
        except UnsafeDataError as error:
            raise ConnectError(str(error)) from None

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node, or change the value; a value of CORDONS cordons it, any other ends a cordon of ours. False when
        that fails, and for a cordon where the node is cordoned by another actor. Never raises."""
        ours = {"key": SOFT_TAINT, "value": value, "effect": EFFECT, "timeAdded": rfc3339(self._clock.now())}
        return self._change(node, lambda state: _marked(state, ours), when_gone=False)

    def take(self, node: str) -> bool:
        """Remove our taint and our cordon; True when they are gone, also when the node is. False when that fails."""
        return self._change(node, _unmarked, when_gone=True)

    def _change(self, node: str, change: Callable[[_State], _State | None], *, when_gone: bool) -> bool:
        """`change` gives the state to write instead of the one read; None leaves the node as it is."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda done: done is None),
            stop=tenacity.stop_after_attempt(1 + CONFLICT_RETRIES),
            wait=growing_wait(BACKOFF_SECONDS),
            sleep=self._pause,
            retry_error_callback=lambda _: False,
        )
        try:
            return bool(retrying(self._change_once, NODES.path(name=node), change, when_gone))
        except RebalancerError:
            return False

    def _change_once(self, path: str, change: Callable[[_State], _State | None], when_gone: bool) -> bool | None:
        """None after a conflict."""
        found = self._client.read(
            path, TaintedNode, verb="get", resource=NODES.rbac_name, timeouts=TIMEOUTS, retries=RETRIES
        )
        if found is None:
            return when_gone
        before = _State(found.spec.taints or [], found.spec.unschedulable)
        after = change(before)
        if after is None or after == before:
            return after is not None
        status = self._patch(path, before, after, found.metadata.resource_version)
        if status == 409:
            return None
        return when_gone if status == 404 else status == 200

    def _patch(self, path: str, before: _State, after: _State, version: str) -> int:
        spec: dict[str, Any] = {"taints": after.taints}
        if after.cordoned != before.cordoned:
            spec["unschedulable"] = after.cordoned or None
        body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "spec": spec})
        return self._client.send("PATCH", path, body, content_type=MERGE_PATCH, timeouts=TIMEOUTS).status


def _marked(state: _State, ours: Taint) -> _State | None:
    """The state with our taint; None where it would claim a cordon that isn't ours."""
    if ours["value"] not in CORDONS:
        return _State(_with(state, ours), state.cordoned and not state.cordoned_by_us)
    if state.cordoned and not state.cordoned_by_us:
        return None
    return _State(_with(state, ours), True)


def _unmarked(state: _State) -> _State:
    others = [each for each in state.taints if not _is_ours(each)]
    return _State(others, state.cordoned and not state.cordoned_by_us)


def _with(state: _State, ours: Taint) -> list[Taint]:
    """The taints with ours in its old place, or at the end; unchanged where ours has that value already."""
    old = state.ours
    if old is None:
        return [*state.taints, ours]
    if old.get("value", "") == ours["value"]:
        return state.taints
    return [ours if each is old else each for each in state.taints]


def _is_ours(taint: Taint) -> bool:
    return taint.get("key") == SOFT_TAINT and taint.get("effect") == EFFECT
