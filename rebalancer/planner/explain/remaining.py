"""Nodes that stay hot after a plan: what keeps the load there, and which setting would help most."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rebalancer.model.decisions.plan import PodRefusal, RemainingHotNode
from rebalancer.model.reason import Reason

NOT_THE_CAUSE = (Reason.GOAL_REACHED, Reason.NO_RELIEF, Reason.DAEMONSET_POD, Reason.STATIC_POD, Reason.TERMINATING)
"""Codes that explain a node only where nothing else does."""


def remaining_of(
    nodes: Iterable[tuple[str, str, str, float]], refusals: Sequence[PodRefusal]
) -> list[RemainingHotNode]:
    """`nodes`: (name, pool, resource, planned share of it) of each node that stays hot."""
    by_node: dict[str, list[PodRefusal]] = {}
    for each in refusals:
        if each.name:
            by_node.setdefault(each.node, []).append(each)
    return [
        replace(_remaining(name, pool, share, by_node.get(name, [])), resource=resource)
        for name, pool, resource, share in nodes
    ]


def _remaining(name: str, pool: str, share: float, refusals: Sequence[PodRefusal]) -> RemainingHotNode:
    found = [each for each in refusals if each.code not in NOT_THE_CAUSE] or list(refusals)
    # pods that no setting would free explain a node only where there are no others
    found = [each for each in found if each.setting or each.code.setting] or found
    weight: dict[Reason, float] = {}
    for each in found:
        weight[each.code] = weight.get(each.code, 0.0) + (each.cpu_millicores or 0.0)
    if not weight:
        return RemainingHotNode(
            name=name, pool=pool, share_planned=share, code=Reason.NO_POD_USAGE, message="it has no candidates"
        )
    code = max(weight, key=lambda each: (weight[each], each))
    largest = max(
        (each for each in found if each.code is code), key=lambda each: (each.cpu_millicores or 0.0, each.name)
    )
    return RemainingHotNode(
        name=name,
        pool=pool,
        share_planned=share,
        code=code,
        message=f"{largest.namespace}/{largest.name}: {largest.message}",
        pod=f"{largest.namespace}/{largest.name}",
        setting=largest.setting or code.setting,
        value=largest.value,
    )
