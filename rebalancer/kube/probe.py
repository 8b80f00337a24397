"""What `doctor` asks the API server: who is there, what we may do, and who holds the lease."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.actions.events import EVENTS
from rebalancer.kube.leader.lease import LEASES
from rebalancer.kube.snapshot.records import Lease
from rebalancer.kube.snapshot.snapshot import NODES, READ_RESOURCES
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.errors import ConnectError

ACCESS_REVIEWS = Resource(group="authorization.k8s.io", version="v1", plural="selfsubjectaccessreviews")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One thing that we need to be allowed."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str | None = None
    """None = in the whole cluster."""
    name: str = ""
    """Of the one object that it is about; empty = of all."""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        group = f".{self.group}" if self.group else ""
        one = f" {self.name}" if self.name else ""
        return f"{self.verb} {name}{group}{one}" + (f" in {self.namespace}" if self.namespace else "")


TAINT_PERMISSIONS = tuple(Permission(verb=verb, group=NODES.group, resource=NODES.plural) for verb in ("get", "patch"))
"""What it takes to change a node's taints."""


DAEMON_PERMISSIONS = (
    *(Permission(verb="watch", group=each.group, resource=each.plural) for each in READ_RESOURCES),
    Permission(verb="create", group=EVENTS.group, resource=EVENTS.plural),
)
"""What it takes to keep the cluster in memory and to tell people what we do."""


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def needed_permissions(
    *, lease_namespace: str, lease_name: str = "", steers: bool = False, daemon: bool = False
) -> tuple[Permission, ...]:
    """What `run` needs: to list what a snapshot reads, to re-read and evict pods, to keep its Lease.

    `steers`: and to put our taint on nodes. `daemon`: and to watch what it lists, and to write Events.
    """
    lists = [Permission(verb="list", group=each.group, resource=each.plural) for each in READ_RESOURCES]
    return (
        *lists,
        Permission(verb="get", group="", resource="pods"),
        Permission(verb="create", group="", resource="pods", subresource="eviction"),
        # a create can't be limited to a name
        *(
            Permission(verb=verb, group=LEASES.group, resource=LEASES.plural, namespace=lease_namespace, name=name)
            for verb, name in (("get", lease_name), ("create", ""), ("update", lease_name))
        ),
        *(TAINT_PERMISSIONS if steers else ()),
        *(DAEMON_PERMISSIONS if daemon else ()),
    )


def rules(permissions: Iterable[Permission]) -> str:
    """What would grant them: `ClusterRole: [{apiGroups: [""], resources: [pods], verbs: [get]}]; Role in tools: [...]`.

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


def server_version(client: ApiClient) -> str:
    """The API server's version, as `v1.36.2`. Raises ConnectError or UnsafeDataError."""
    version = client.read("/version", _Version, verb="get", resource="/version")
    if version is None:
        raise ConnectError(f"{client.server}: no Kubernetes API server: /version answers 404")
    return version.git_version


def can_i(client: ApiClient, permission: Permission) -> bool | None:
    """Whether we are allowed to; None where the server has no access reviews.

    Raises ConnectError or UnsafeDataError.
    """
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
        "namespace": permission.namespace or "",
        "name": permission.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    response = client.send("POST", ACCESS_REVIEWS.path(), msgspec.json.encode(body))
    if response.status == 404:
        return None
    if response.status not in (200, 201):
        raise client.error(response, verb="create", resource=ACCESS_REVIEWS.rbac_name)
    return client.decode(response.data, _Review, what="the access review").status.allowed


def lease_holder(
    client: ApiClient, namespace: str, name: str, *, wall_time: Callable[[], float] = time.time
) -> str | None:
    """Who holds the Lease, and how long ago it was renewed; None when there is no Lease.

    The age compares the holder's clock with ours, so it is only to be shown. Raises ConnectError or UnsafeDataError.
    """
    lease = client.read(LEASES.path(namespace=namespace, name=name), Lease, verb="get", resource=LEASES.rbac_name)
    if lease is None:
        return None
    holder = lease.spec.holder_identity or "nobody"
    age = wall_time() - epoch_seconds(lease.spec.renew_time)
    if not math.isfinite(age):
        return f"{holder}, never renewed"
    duration = lease.spec.lease_duration_seconds
    expired = " (run out)" if lease.spec.holder_identity and duration is not None and age > duration else ""
    return f"{holder}, renewed {age:.0f} s ago{expired}"
