"""A node's taints: validation, the taint of a cordon, and changes."""

from rebalancer.lab.clock import timestamp
from rebalancer.lab.objects.errors import ApiError
from rebalancer.lab.objects.kinds import Obj

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_taints(node: Obj) -> None:
    """Raises ApiError 422 as the API server does (pkg/apis/core/validation, `validateNodeTaints`)."""
    seen: set[tuple[str, str]] = set()
    for number, taint in enumerate(node["spec"].get("taints") or ()):
        where = f'Node "{node["metadata"]["name"]}" is invalid: spec.taints[{number}]'
        if not taint.get("key"):
            raise ApiError(422, "Invalid", f"{where}.key: Required value")
        if taint.get("effect") not in _EFFECTS:
            raise ApiError(422, "Invalid", f"{where}.effect: Unsupported value: {taint.get('effect')!r}")
        if (taint["key"], taint["effect"]) in seen:
            raise ApiError(422, "Invalid", f"{where}: Duplicate value: taints must be unique by key and effect pair")
        seen.add((taint["key"], taint["effect"]))


def set_cordon(node: Obj, *, on: bool, now: float) -> None:
    """Set `spec.unschedulable` and its taint, as the control plane dates it. Changes `node`."""
    before = node["spec"].get("taints") or ()
    taints = [each for each in before if each["key"] != UNSCHEDULABLE]
    node["spec"].pop("unschedulable", None)
    if on:
        node["spec"]["unschedulable"] = True
        there = [each for each in before if each["key"] == UNSCHEDULABLE]
        taints += there or [{"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": timestamp(now)}]
    set_taints(node, taints)


def set_taints(node: Obj, taints: list[Obj]) -> None:
    """Give the node these taints and no others. Changes `node`."""
    node["spec"].pop("taints", None)
    if taints:
        node["spec"]["taints"] = taints


def changed(before: Obj, after: Obj) -> tuple[list[Obj], list[Obj]]:
    """(gone, new) taints between two states of a node; one with another value is both."""
    old, new = before["spec"].get("taints") or [], after["spec"].get("taints") or []
    if old == new:
        return [], []
    had, has = {_identity(each) for each in old}, {_identity(each) for each in new}
    return [each for each in old if _identity(each) not in has], [each for each in new if _identity(each) not in had]


def _identity(taint: Obj) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint.get("effect", "")
