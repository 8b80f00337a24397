"""Objects as a tenant sends them to the lab's API server."""

import json
import urllib.request
from typing import Any

from rebalancer.lab import Lab

Json = dict[str, Any]
LABELS = {"app": "odd"}


def call(lab: Lab, method: str, path: str, body: Json | None = None) -> Json:
    """One request. Raises HTTPError for an answer that is no success."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(
        lab.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": kind, "Authorization": f"Bearer {lab.token or ''}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def a_pod(name: str, node: str, *, requests: Json | None = None, **metadata: Any) -> Json:
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests or {"cpu": "1m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "tenant", "labels": LABELS, **metadata},
        "spec": {"nodeName": node, "containers": [container]},
    }


def odd_pod(name: str, node: str, **requests: str) -> Json:
    """A pod with these requests."""
    return a_pod(name, node, requests=requests)


def a_replicaset(name: str) -> Json:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "tenant", "labels": LABELS},
        "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template},
    }


def controlled_by(owner: Json) -> Json:
    """The metadata that makes this object the controller."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return {"ownerReferences": [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]}
