"""RemoveDuplicates: more pods of one owner on a node than its fair share, while other nodes have fewer.

Pods are duplicates of each other when they have the same direct owner (ReplicaSet, StatefulSet, Job, ...) and the same
images. The fair share is their number divided by the nodes that could take them, rounded up. Pending and terminating
pods count: the latter are replaced.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Evenness, Finding, LandingRule
from rebalancer.model.notation.arrays import Bools, Rows
from rebalancer.policy.schema.strategies.constraints import DuplicatesArgs
from rebalancer.strategies.interface.selection import Places, by_names, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

PINNED_KINDS = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods are bound to their node."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """Pods of one owner with the same images."""

    staying: Rows
    """On a node and not terminating."""
    count: int
    """With pending and terminating ones."""
    places: Bools
    """(nodes,) nodes that could take them."""


def find(view: StrategyView) -> Findings:
    """One finding for each owner, set of images and node; those with most too many first, then by name."""
    args = view.strategy.args
    assert isinstance(args, DuplicatesArgs)
    snapshot = view.snapshot
    observed_pods = pods_in_scope(view, args)
    places = Places(snapshot, view.projection.is_closed)
    found: list[tuple[int, Finding]] = []
    for copies in _crowded(snapshot, observed_pods, PINNED_KINDS.union(args.exclude_owner_kinds), places):
        found += _over(view, copies, observed_pods)
    ordered = by_names(snapshot, [finding for _, finding in found], most_first=[many for many, _ in found])
    return Findings(findings=tuple(ordered))


def _crowded(
    snapshot: ClusterSnapshot, observed_pods: Bools, without: frozenset[str], places: Places
) -> Iterator[_Copies]:
    """Copies of which a node in scope may have too many."""
    pods, nodes = snapshot.pods, len(snapshot.nodes)
    counts = np.append(np.array([owner.kind not in without for owner in snapshot.owners], dtype=np.bool_), False)
    owned = counts[pods.owner]
    there = np.flatnonzero(owned & snapshot.active & ~pods.terminating)
    code = pods.owner[there].astype(np.int64) * nodes + pods.node[there]
    order = np.argsort(code)
    ranked = code[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    observed = np.logical_or.reduceat(observed_pods[there][order], starts)
    shared = np.diff(starts, append=len(ranked)) > 1
    crowded = np.zeros(len(counts), dtype=np.bool_)
    crowded[ranked[starts[shared & observed]] // max(nodes, 1)] = True  # others have at most their fair share
    unfinished = (pods.phase != SUCCEEDED) & (pods.phase != FAILED)
    for members in groups(pods.owner, members=np.flatnonzero(owned & crowded[pods.owner] & unfinished)):
        by_images: dict[frozenset[str], list[int]] = {}
        for template in sorted(set(pods.template[members].tolist())):
            by_images.setdefault(frozenset(snapshot.pod_templates[template].images), []).append(template)
        for templates in by_images.values():
            copies = members if len(by_images) == 1 else members[np.isin(pods.template[members], templates)]
            masks = {id(mask): mask for mask in (places.of(snapshot.pod_templates[template]) for template in templates)}
            yield _Copies(
                staying=copies[(pods.node[copies] >= 0) & ~pods.terminating[copies]],
                count=len(copies),
                places=np.logical_or.reduce(list(masks.values())),
            )


def _over(view: StrategyView, copies: _Copies, observed_pods: Bools) -> Iterator[tuple[int, Finding]]:
    """(how many too many, finding) of each node with more than its fair share."""
    snapshot, takes = view.snapshot, int(np.count_nonzero(copies.places))
    if takes < 2:
        return
    of_node = snapshot.pods.node[copies.staying]
    count = np.bincount(of_node, minlength=len(snapshot.nodes)).astype(np.float64)
    fair = math.ceil(copies.count / takes)
    chosen = copies.staying[observed_pods[copies.staying] & (count > fair)[of_node]]
    if not len(chosen):
        return
    # a node that takes no more has a domain, too, while it has pods to give
    domain = np.where(copies.places | (count > 0), np.arange(len(count)), -1).astype(np.int32)
    rule = LandingRule(only=copies.places, even=Evenness(domain=domain, count=count))
    owner = snapshot.owners[int(snapshot.pods.owner[chosen[0]])]
    for pods in groups(snapshot.pods.node, members=chosen):
        here = int(count[snapshot.pods.node[pods[0]]])
        reason = (
            f"{here} pods of {owner.kind} {owner.namespace}/{owner.name} share the node, {fair} would be fair: "
            f"{copies.count} pods, {takes} nodes that could take them"
        )
        too_many = here - fair
        yield too_many, some_pods(view, cheapest_first(snapshot, pods), reason, landing=rule, wanted=too_many)
