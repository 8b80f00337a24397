"""`metrics.k8s.io` as metrics-server serves it: means over its short window."""

from collections.abc import Mapping

import numpy as np

from rebalancer.lab.apiserver.selectors import predicate
from rebalancer.lab.clock import timestamp
from rebalancer.lab.faults import names_node
from rebalancer.lab.loads.amounts import Amounts, memory
from rebalancer.lab.loads.usage import SCRAPE_SECONDS, Figures
from rebalancer.lab.objects.errors import ApiError, no_such_path
from rebalancer.lab.objects.kinds import METRICS_GROUP, METRICS_VERSION, Obj
from rebalancer.lab.serving import ServedLab

WINDOW_SECONDS = 30.0
_API_VERSION = f"{METRICS_GROUP}/{METRICS_VERSION}"


def answer(lab: ServedLab, rest: list[str], query: Mapping[str, str]) -> Obj:
    """Answer a path below the group's version. Raises ApiError 404."""
    now = lab.clock.now()
    figures = lab.usage.window_means(np.array([now]), window_seconds=WINDOW_SECONDS)
    taken = timestamp(np.floor(now / SCRAPE_SECONDS) * SCRAPE_SECONDS)
    used = memory(figures.columns, np.array([now]))
    match rest:
        case ["nodes"]:
            return _list("NodeMetricsList", _chosen(lab, "nodes", _nodes(lab, figures, used, taken), query))
        case ["nodes", name]:
            return _one(_nodes(lab, figures, used, taken), "", name)
        case ["pods"]:
            return _list("PodMetricsList", _chosen(lab, "pods", _pods(lab, figures, used, taken), query))
        case ["namespaces", namespace, "pods"]:
            found = _chosen(lab, "pods", _pods(lab, figures, used, taken), query, namespace)
            return _list("PodMetricsList", found)
        case ["namespaces", namespace, "pods", name]:
            return _one(_pods(lab, figures, used, taken), namespace, name)
    raise no_such_path()


def _usage(cores: float, memory_bytes: float) -> Obj:
    return {"cpu": f"{round(cores * 1e9)}n", "memory": f"{round(memory_bytes / 1024)}Ki"}


def _nodes(lab: ServedLab, figures: Figures, used: Amounts, taken: str) -> list[Obj]:
    found = []
    for row, machine in enumerate(figures.columns.machines):
        node = lab.cluster.store.find("nodes", "", machine.name)
        if node is None or not figures.up[row, 0] or names_node(lab.faults.state.missing, machine.name):
            continue
        meta = {key: node["metadata"].get(key) for key in ("name", "labels", "creationTimestamp")}
        usage = _usage(float(figures.nodes[row, 0]), float(used.nodes[row, 0]))
        found.append(_item("NodeMetrics", meta, taken, {"usage": usage}))
    return found


def _pods(lab: ServedLab, figures: Figures, used: Amounts, taken: str) -> list[Obj]:
    found = []
    of_stay = dict(zip(used.rows.tolist(), used.pods[:, 0].tolist(), strict=True))
    for row, index in enumerate(figures.rows):
        stay = figures.columns.stays[index]
        pod = lab.cluster.store.find("pods", stay.namespace, stay.pod)
        if pod is None or pod["metadata"]["uid"] != stay.uid or names_node(lab.faults.state.missing, stay.node):
            continue
        meta = {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels", "creationTimestamp")}
        cores, amount = float(figures.pods[row, 0]), of_stay.get(int(index), 0.0)
        containers = [
            {"name": name, "usage": _usage(cores * share, amount * share)} for name, _, share in stay.containers
        ]
        found.append(_item("PodMetrics", meta, taken, {"containers": containers}))
    return found


def _item(kind: str, meta: Obj, taken: str, more: Obj) -> Obj:
    window = f"{round(WINDOW_SECONDS)}s"
    return {"kind": kind, "apiVersion": _API_VERSION, "metadata": meta, "timestamp": taken, "window": window, **more}


def _chosen(lab: ServedLab, plural: str, items: list[Obj], query: Mapping[str, str], namespace: str = "") -> list[Obj]:
    selector = query.get("labelSelector", "")
    shows = predicate(plural, label_selector=selector, namespace=namespace)
    kept = [{key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in items if shows(item)]
    return sorted(kept, key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))


def _list(kind: str, items: list[Obj]) -> Obj:
    return {"kind": kind, "apiVersion": _API_VERSION, "metadata": {}, "items": items}


def _one(items: list[Obj], namespace: str, name: str) -> Obj:
    for item in items:
        if item["metadata"]["name"] == name and item["metadata"].get("namespace", "") == namespace:
            return item
    raise ApiError(404, "NotFound", f'metrics "{name}" not found')
