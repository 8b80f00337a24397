"""The checks that `doctor` makes on the API server: version, permissions, holder of the Lease, nodes."""

import math
import time
from collections.abc import Callable, Iterable

import msgspec

from rebalancer.kube.actions.eviction_events import EVENTS
from rebalancer.kube.actions.surges import SURGE_PERMISSIONS
from rebalancer.kube.actions.taints import TAINT_PERMISSIONS
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.client.permissions import Permission
from rebalancer.kube.leader.lease import LEASES
from rebalancer.kube.snapshot.columns import NodeColumns
from rebalancer.kube.snapshot.lists import Gathered, read_list
from rebalancer.kube.snapshot.records import Meta, Node, Wire
from rebalancer.kube.snapshot.snapshot import NODES, READ_RESOURCES, SERVICES
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.policy.metrics_servers import ClusterService

DAEMON_PERMISSIONS = (
    *(Permission(verb="watch", group=each.group, resource=each.plural) for each in READ_RESOURCES),
    Permission(verb="create", group=EVENTS.group, resource=EVENTS.plural),
    Permission(verb="list", group=EVENTS.group, resource=EVENTS.plural),
)
"""Permissions to watch the cluster, to write Events, and to count evictions again that a restored database lacks."""


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(Wire, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class _Port(msgspec.Struct):
    port: int = 0


class _ServiceSpec(msgspec.Struct):
    ports: list[_Port] = []


class _Service(msgspec.Struct):
    metadata: Meta = Meta()
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


def needed_permissions(
    *,
    lease_namespace: str,
    lease_name: str = "",
    taints_nodes: bool = False,
    surges: bool = False,
    daemon: bool = False,
) -> tuple[Permission, ...]:
    """Permissions of `run`: list what a snapshot reads, re-read and evict pods, keep the Lease.

    `taints_nodes`: also to taint nodes. `surges`: also to move pods by replacement first. `daemon`: also to watch the
    listed kinds, and to write Events.
    """
    lists = [Permission(verb="list", group=each.group, resource=each.plural) for each in READ_RESOURCES]
    return (
        *lists,
        Permission(verb="get", group="", resource="pods"),
        Permission(verb="create", group="", resource="pods", subresource="eviction"),
        # a create can't be restricted to a name
        *(
            Permission(verb=verb, group=LEASES.group, resource=LEASES.plural, namespace=lease_namespace, name=name)
            for verb, name in (("get", lease_name), ("create", ""), ("update", lease_name))
        ),
        *(TAINT_PERMISSIONS if taints_nodes else ()),
        *(SURGE_PERMISSIONS if surges else ()),
        *(DAEMON_PERMISSIONS if daemon else ()),
    )


def rules(permissions: Iterable[Permission]) -> str:
    """The rules that grant them: `ClusterRole: [{apiGroups: [""], resources: [pods], verbs: [get]}]; Role in tools:
    [...]`.

    The brackets hold YAML as it stands in a role's `rules`.
    """
    verbs: dict[tuple[str, str, str, str], list[str]] = {}
    for each in permissions:
        role = f"Role in {each.namespace}" if each.namespace else "ClusterRole"
        resource = f"{each.resource}/{each.subresource}" if each.subresource else each.resource
        verbs.setdefault((role, each.group, each.name, resource), []).append(each.verb)
    resources: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (role, group, name, resource), of_one in verbs.items():
        resources.setdefault((role, group, name, tuple(of_one)), []).append(resource)
    roles: dict[str, list[str]] = {}
    for (role, group, name, of_all), plurals in resources.items():
        only = f", resourceNames: [{name}]" if name else ""
        rule = f'apiGroups: ["{group}"], resources: [{", ".join(plurals)}]{only}, verbs: [{", ".join(of_all)}]'
        roles.setdefault(role, []).append(f"{{{rule}}}")
    return "; ".join(f"{role}: [{', '.join(held)}]" for role, held in roles.items())


def list_nodes(client: ApiClient) -> Nodes:
    """The nodes alone. Raises ConnectError, UnsafeDataError."""
    return read_list(client, NODES, item=Node, collector=NodeColumns)[0].finish()


def list_services(client: ApiClient) -> list[ClusterService]:
    """The Services of all namespaces. Raises ConnectError, UnsafeDataError."""
    found: Gathered[_Service] = read_list(client, SERVICES, item=_Service, collector=Gathered)[0]
    return [
        ClusterService(
            namespace=each.metadata.namespace,
            name=each.metadata.name,
            labels=each.metadata.labels or {},
            ports=tuple(port.port for port in each.spec.ports),
        )
        for each in found
    ]


def lease_held(client: ApiClient, namespace: str, name: str, *, wall_time: Callable[[], float] = time.time) -> bool:
    """Whether a process holds the Lease, which has not expired by our clock. Raises ConnectError or UnsafeDataError."""
    lease = client.read(LEASES.path(namespace=namespace, name=name), Lease, verb="get", resource=LEASES.rbac_name)
    if lease is None or not lease.spec.holder_identity:
        return False
    return wall_time() - epoch_seconds(lease.spec.renew_time) <= (lease.spec.lease_duration_seconds or 0)


def lease_holder(
    client: ApiClient, namespace: str, name: str, *, wall_time: Callable[[], float] = time.time
) -> str | None:
    """The holder of the Lease and the age of its last renewal; None when there is no Lease.

    The age compares the holder's clock with ours, so it is for display only. Raises ConnectError or UnsafeDataError.
    """
    lease = client.read(LEASES.path(namespace=namespace, name=name), Lease, verb="get", resource=LEASES.rbac_name)
    if lease is None:
        return None
    holder = lease.spec.holder_identity or "no holder"
    age = wall_time() - epoch_seconds(lease.spec.renew_time)
    if not math.isfinite(age):
        return f"{holder}, never renewed"
    duration = lease.spec.lease_duration_seconds
    expired = " (expired)" if lease.spec.holder_identity and duration is not None and age > duration else ""
    return f"{holder}, renewed {age:.0f} s ago{expired}"
