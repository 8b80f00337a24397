"""Permissions on the API server, and the access reviews that check them."""

from dataclasses import dataclass

import msgspec

from rebalancer.kube.client.client import ApiClient, Resource

ACCESS_REVIEWS = Resource(group="authorization.k8s.io", version="v1", plural="selfsubjectaccessreviews")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One permission: a verb on a resource."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str | None = None
    """None: cluster-wide."""
    name: str = ""
    """Restricted to the object of this name; empty: all objects."""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        group = f".{self.group}" if self.group else ""
        one = f" {self.name}" if self.name else ""
        return f"{self.verb} {name}{group}{one}" + (f" in {self.namespace}" if self.namespace else "")


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def can_i(client: ApiClient, permission: Permission) -> bool | None:
    """Whether the permission is granted; None where the server has no access reviews.

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
