"""Access control: everything is allowed, apart from what the fault `denied` names."""

from typing import Any, Protocol

from rebalancer.lab.objects.errors import bad_request, forbidden
from rebalancer.lab.objects.kinds import Kind
from rebalancer.lab.serving import ServedLab

Obj = dict[str, Any]

REVIEW_PATH = ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]


class Target(Protocol):
    """The target of a path."""

    @property
    def kind(self) -> Kind: ...

    @property
    def name(self) -> str: ...

    @property
    def subresource(self) -> str: ...


def verb_of(method: str, *, named: bool, watched: bool) -> str:
    """The RBAC verb of a request."""
    match method:
        case "GET" | "HEAD":
            return "watch" if watched else "get" if named else "list"
        case "DELETE":
            return "delete" if named else "deletecollection"
        case "POST":
            return "create"
        case "PUT":
            return "update"
    return method.lower()


def check(lab: ServedLab, target: Target, *, method: str, watched: bool) -> None:
    """Raises ApiError 403 when the fault `denied` names the request's verb and resource."""
    denied = lab.faults.state.denied
    if not denied:
        return
    verb = verb_of(method, named=bool(target.name), watched=watched)
    resource = _resource(target.kind.plural, target.subresource)
    if (verb, resource) in denied:
        raise forbidden(target.kind, target.name, verb=verb, resource=resource)


def review(lab: ServedLab, body: Any) -> Obj:
    """Answer a SelfSubjectAccessReview. Raises ApiError 400."""
    attributes = ((body if isinstance(body, dict) else {}).get("spec") or {}).get("resourceAttributes")
    if not isinstance(attributes, dict):
        raise bad_request("the lab answers a SelfSubjectAccessReview for spec.resourceAttributes only")
    resource = _resource(attributes.get("resource", ""), attributes.get("subresource", ""))
    allowed = (attributes.get("verb", ""), resource) not in lab.faults.state.denied
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
        "status": {"allowed": True} if allowed else {"allowed": False, "reason": "the fault `denied`"},
    }


def _resource(plural: str, subresource: str) -> str:
    return f"{plural}/{subresource}" if subresource else plural
