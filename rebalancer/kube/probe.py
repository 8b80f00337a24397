"""What `doctor` asks the API server: who is there, and what we may do."""

from dataclasses import dataclass

import msgspec

from rebalancer.kube.client import ApiClient, Resource
from rebalancer.kube.lease import LEASES
from rebalancer.kube.snapshot import READ_RESOURCES
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

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {name}{group}" + (f" in {self.namespace}" if self.namespace else "")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def needed_permissions(*, lease_namespace: str) -> tuple[Permission, ...]:
    """What `run` needs: to list what a snapshot reads, to re-read and evict pods, to keep its Lease."""
    lists = [Permission(verb="list", group=each.group, resource=each.plural) for each in READ_RESOURCES]
    return (
        *lists,
        Permission(verb="get", group="", resource="pods"),
        Permission(verb="create", group="", resource="pods", subresource="eviction"),
        *(
            Permission(verb=verb, group=LEASES.group, resource=LEASES.plural, namespace=lease_namespace)
            for verb in ("get", "create", "update")
        ),
    )


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
