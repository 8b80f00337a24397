"""Access control: everything is allowed, apart from what the fault `denied` names."""

from typing import Any, Protocol

from rebalancer.lab.objects.errors import bad_request, forbidden
from rebalancer.lab.objects.kinds import Kind, Obj
from rebalancer.lab.serving import ServedLab

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
REVIEWS = {
    (AUTHORIZATION, "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    (AUTHORIZATION, "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    (AUTHENTICATION, "selfsubjectreviews"): "SelfSubjectReview",
}
"""(group, resource) -> kind; all of version v1."""


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


def reviewed(parts: list[str]) -> str | None:
    """The kind of review that a split path names, or None."""
    if len(parts) != 4 or parts[0] != "apis" or parts[2] != "v1":
        return None
    return REVIEWS.get((parts[1], parts[3]))


def review(lab: ServedLab, kind: str, body: Any) -> Obj:
    """Answer a review: `kubectl auth can-i`, `auth can-i --list`, `auth whoami`. Raises ApiError 400."""
    spec = (body if isinstance(body, dict) else {}).get("spec") or {}
    group = next(group for (group, _), each in REVIEWS.items() if each == kind)
    answer: Obj = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": spec}
    match kind:
        case "SelfSubjectReview":
            del answer["spec"]
            answer["status"] = {"userInfo": {"username": "lab", "groups": ["system:authenticated"]}}
        case "SelfSubjectRulesReview":
            answer["status"] = {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": bool(lab.faults.state.denied),
            }
        case _:
            answer["status"] = _access(lab, spec)
    return answer


def _access(lab: ServedLab, spec: Obj) -> Obj:
    attributes = spec.get("resourceAttributes")
    if not isinstance(attributes, dict):
        if isinstance(spec.get("nonResourceAttributes"), dict):
            return {"allowed": True}
        raise bad_request("spec needs resourceAttributes or nonResourceAttributes")
    resource = _resource(attributes.get("resource", ""), attributes.get("subresource", ""))
    allowed = (attributes.get("verb", ""), resource) not in lab.faults.state.denied
    return {"allowed": True} if allowed else {"allowed": False, "reason": "the fault `denied`"}


def _resource(plural: str, subresource: str) -> str:
    return f"{plural}/{subresource}" if subresource else plural
