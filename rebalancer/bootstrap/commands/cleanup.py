"""What `rebalancer cleanup` does: our taints and cordons leave the nodes, after the daemon has stopped."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.cycle.soft_taints import our_taints
from rebalancer.kube.actions.stop import scale_to_zero
from rebalancer.kube.actions.taints import KubeNodeTaints
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.probe import lease_held, lease_holder, list_nodes
from rebalancer.model.cluster.steering import MAINTENANCE
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConfigError, LeaseHeldError

POLL_SECONDS = 1.0

REMOVED, KEPT, FAILED = "removed", "kept", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedNode:
    """A node that had our taint."""

    node: str
    value: str
    """Of the taint: its cause."""
    outcome: str
    """REMOVED, KEPT or FAILED."""


def clean_up(
    settings: Settings,
    *,
    deployment: str | None,
    seconds: float,
    progress: Progress,
    sleep: Callable[[float], None] = time.sleep,
) -> list[CleanedNode]:
    """Scale the daemon's Deployment to 0, wait until no process holds the Lease, and remove our taints and cordons from
    all nodes. Those for maintenance are kept.

    `deployment`: its name, in the namespace of the Lease; None = none is scaled. Waits up to `seconds`. Raises
    LeaseHeldError when the Lease is held for longer, ConfigError, ConnectError.
    """
    namespace, name = settings.lease_at
    with ExitStack() as stack:
        client = client_of(settings, stack)
        if deployment is not None and not scale_to_zero(client, namespace, deployment):
            raise ConfigError(f"--deployment: {client.server} has no Deployment {deployment} in namespace {namespace}")
        _await_lease(client, namespace, name, seconds=seconds, sleep=sleep)
        found = sorted(our_taints(list_nodes(client)).items())
        taints = KubeNodeTaints(client=client, clock=SystemClock())
        cleaned = []
        for done, (node, (value, _)) in enumerate(found):
            progress.step("nodes", done, len(found))
            outcome = KEPT if value == MAINTENANCE else REMOVED if taints.take(node) else FAILED
            cleaned.append(CleanedNode(node=node, value=value, outcome=outcome))
        return cleaned


def _await_lease(
    client: ApiClient, namespace: str, name: str, *, seconds: float, sleep: Callable[[float], None]
) -> None:
    """Until no process holds it, or it has expired. Raises LeaseHeldError after `seconds`."""
    left = math.ceil(seconds / POLL_SECONDS)
    while lease_held(client, namespace, name):
        if left <= 0:
            holder = lease_holder(client, namespace, name)
            raise LeaseHeldError(
                f"the lease {namespace}/{name} is held by {holder}: taints that its process needs stay. Stop the "
                "daemon first, or name its Deployment with --deployment"
            )
        left -= 1
        sleep(POLL_SECONDS)
