"""Zones that fail: their kubelets are silent, and their pods are replaced elsewhere.

The node lifecycle controller taints such nodes. Not modelled: the five minutes for which pods tolerate that, pods that
stay Terminating until their kubelet is back. DaemonSets' pods go on.
"""

from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.objects.taints import set_taints
from rebalancer.lab.scenarios.build import condition

ZONE_LABEL = "topology.kubernetes.io/zone"
UNREACHABLE = "node.kubernetes.io/unreachable"


def nodes_of(store: Store, zone: str) -> list[Obj]:
    """The zone's nodes, by name."""
    return [node for node in store.sorted("nodes") if (node["metadata"].get("labels") or {}).get(ZONE_LABEL) == zone]


def set_zone(store: Store, zone: str, *, up: bool) -> None:
    """Fail or restore all nodes of a zone. The caller holds the lock."""
    for node in nodes_of(store, zone):
        store.change("nodes", node, lambda new: _set_node(new, up=up, now=store.clock.now()))


def _set_node(node: Obj, *, up: bool, now: float) -> None:
    taints = [each for each in node["spec"].get("taints") or () if each["key"] != UNREACHABLE]
    if not up:
        taints += [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    set_taints(node, taints)
    others = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
    reason = "KubeletReady" if up else "NodeStatusUnknown"
    ready = {**condition("Ready", up, now, reason=reason), **({} if up else {"status": "Unknown"})}
    node["status"]["conditions"] = [*others, ready]
