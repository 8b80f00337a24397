"""Discovery: the responses of `/api`, `/apis` and their versions, so that kubectl finds every resource."""

from typing import Any

from rebalancer.lab.apiserver.access import REVIEWS
from rebalancer.lab.objects.kinds import KINDS, METRICS_GROUP, METRICS_VERSION, Kind, Obj

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+rebalancer.lab",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def api_versions(address: str) -> Obj:
    """`/api`."""
    by_address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": by_address}


def group_versions() -> list[tuple[str, str]]:
    """(group, version) of every named group."""
    found = dict.fromkeys((kind.group, kind.version) for kind in KINDS if kind.group)
    return [*found, *dict.fromkeys((group, "v1") for group, _ in REVIEWS), (METRICS_GROUP, METRICS_VERSION)]


def _group(group: str, version: str) -> Obj:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def api_groups() -> Obj:
    """`/apis`."""
    groups = [_group(group, version) for group, version in group_versions()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str) -> Obj | None:
    """`/apis/<group>`, None when there is no such group."""
    for name, version in group_versions():
        if name == group:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, version)}
    return None


def resources(group: str, version: str) -> Obj | None:
    """`/api/v1` or `/apis/<group>/<version>`, None when there is no such version."""
    if (group, version) == (METRICS_GROUP, METRICS_VERSION):
        listed = [
            _entry("nodes", "NodeMetrics", namespaced=False, verbs=["get", "list"]),
            _entry("pods", "PodMetrics", namespaced=True, verbs=["get", "list"]),
        ]
    else:
        kinds = [kind for kind in KINDS if (kind.group, kind.version) == (group, version)]
        listed = [entry for kind in kinds for entry in _entries(kind)]
        listed += [
            _entry(plural, kind, namespaced=False, verbs=["create"])
            for (of, plural), kind in REVIEWS.items()
            if (of, "v1") == (group, version)
        ]
        if not listed:
            return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def _entry(name: str, kind: str, *, namespaced: bool, verbs: list[str], **more: Any) -> Obj:
    return {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": verbs, **more}


def _entries(kind: Kind) -> list[Obj]:
    main = _entry(kind.plural, kind.kind, namespaced=kind.namespaced, verbs=_VERBS)
    main["singularName"] = kind.singular
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    for subresource in kind.subresources:
        name = f"{kind.plural}/{subresource}"
        if subresource == "eviction":
            more = {"group": "policy", "version": "v1"}
            entries.append(_entry(name, "Eviction", namespaced=True, verbs=["create"], **more))
        elif subresource == "scale":
            more = {"group": "autoscaling", "version": "v1"}
            entries.append(_entry(name, "Scale", namespaced=True, verbs=["get", "patch", "update"], **more))
        else:
            verbs = ["get"] if subresource == "log" else ["get", "patch", "update"]
            entries.append(_entry(name, kind.kind, namespaced=kind.namespaced, verbs=verbs))
    return entries
