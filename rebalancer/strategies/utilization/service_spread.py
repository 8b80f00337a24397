"""ServiceSpread: services that peak together, or share a feature, should not share a node.

Services peak together if their usual days correlate. They are grouped around the largest of them, and a group's pods
are spread over the nodes of a pool: a node with several of its services and more than its fair share of pods gives some
to nodes with fewer.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Evenness, Finding, LandingRule
from rebalancer.model.measured.history import SLOTS
from rebalancer.model.measured.peaks import ServiceDayProfiles
from rebalancer.model.notation.arrays import Bools, Floats, Ints, Rows
from rebalancer.policy.schema.strategies.utilization import ServiceSpreadArgs
from rebalancer.strategies.interface.selection import (
    by_names,
    cheapest_first,
    chosen_pods,
    groups,
    nodes_in_scope,
    some_pods,
)
from rebalancer.strategies.interface.view import Findings, StrategyView

PARTS = 48
"""Parts of a day that are compared: half hours; shorter ones are noise."""
SHAPED = 1.25
"""Least ratio of a day's highest half hour to its mean; below it the day is flat and has no peak."""
NAMED_AT_MOST = 3


def find(view: StrategyView) -> Findings:
    """For each group and pool the nodes with more than their fair share, those with most first."""
    args = view.strategy.args
    assert isinstance(args, ServiceSpreadArgs)
    snapshot = view.snapshot
    pods = np.flatnonzero(
        chosen_pods(snapshot, args) & snapshot.active & ~snapshot.pods.terminating & (snapshot.pods.owner >= 0)
    )
    if args.feature is not None:
        group, why = _by_feature(snapshot, pods, args.feature), f"share {args.feature}"
    elif view.days is not None:
        group, why = _by_days(snapshot, view.days, pods, args), "peak together"
    else:
        return Findings(
            findings=(), notes=("services' usual days aren't known yet, so no services are spread by them",)
        )
    nodes = snapshot.nodes
    takes = nodes.ready & ~nodes.unschedulable & ~view.projection.is_closed
    in_scope = nodes_in_scope(view)
    found: list[tuple[float, Finding]] = []
    for number in np.unique(group[group >= 0]).tolist():
        members = pods[group == number]
        for pool, _ in view.chosen_pools:
            here = members[view.node_pools.of_node[snapshot.pods.node[members]] == pool]
            found += _crowded(view, here, takes & (view.node_pools.of_node == pool), in_scope, why)
    ordered = by_names(snapshot, [finding for _, finding in found], most_first=[over for over, _ in found])
    return Findings(findings=tuple(ordered))


def _by_feature(snapshot: ClusterSnapshot, pods: Rows, label: str) -> Ints:
    """(pods,) number of the label's value; -1 without it."""
    template = snapshot.pods.template[pods]
    number: dict[str, int] = {}
    of_template = np.full(len(snapshot.pod_templates), -1, dtype=np.int32)
    for each in np.unique(template).tolist():
        value = snapshot.pod_templates.outline(each).labels.get(label)
        if value:
            of_template[each] = number.setdefault(value, len(number))
    return of_template[template]


def _by_days(snapshot: ClusterSnapshot, days: ServiceDayProfiles, pods: Rows, args: ServiceSpreadArgs) -> Ints:
    """(pods,) number of the group of services that peak together; -1 for pods that are too small, or whose service has
    a flat day or too little history."""
    row = days.row_of[snapshot.top_owner[snapshot.pods.owner[pods]]]
    peak = np.append(days.usual.max(axis=1, initial=0.0), 0.0)[row]
    capacity = snapshot.nodes.cpu_capacity_millicores[snapshot.pods.node[pods]]
    long_enough = np.append(days.days >= args.min_days, False)[row]
    large = long_enough & (peak >= args.min_share / 100 * capacity)
    of_row = np.full(len(days.usual) + 1, -1, dtype=np.int32)
    rows, first = np.unique(row[large], return_index=True)
    # the largest leads its group; of equally large ones the first by name
    owners = snapshot.pods.owner[pods[large][first]].tolist()
    names = [str(snapshot.service_of(owner)) for owner in owners]
    largest = sorted(range(len(rows)), key=lambda at: (-days.usual[rows[at]].sum(), names[at]))
    for number, members in enumerate(_alike(days.usual, rows[largest].astype(np.int64), args.min_correlation)):
        of_row[members] = number
    return np.where(large, of_row[row], -1)


def _alike(usual: Floats, rows: Rows, least: float) -> Iterator[list[int]]:
    """Groups of services whose days correlate with that of the group's largest by at least `least`."""
    days = usual[rows].reshape(len(rows), PARTS, SLOTS // PARTS).mean(axis=2)
    mean = days.mean(axis=1)
    shaped = days.max(axis=1, initial=0.0) >= SHAPED * np.maximum(mean, 1e-9)
    days = days - mean[:, None]
    days /= np.maximum(np.sqrt((days**2).sum(axis=1)), 1e-9)[:, None]
    left = np.flatnonzero(shaped)
    while len(left):
        with_first = days[left] @ days[left[0]] >= least
        with_first[0] = True
        yield rows[left[with_first]].tolist()
        left = left[~with_first]


def _crowded(
    view: StrategyView, pods: Rows, takes: Bools, in_scope: Bools, why: str
) -> Iterator[tuple[float, Finding]]:
    """(pods over the fair share, finding) of the nodes of a pool that hold too many of a group's pods.

    `takes` (nodes,): the pool's nodes that could take them; `in_scope` (nodes,): nodes to evaluate.
    """
    snapshot = view.snapshot
    nodes = snapshot.nodes
    service = snapshot.top_owner[snapshot.pods.owner[pods]]
    services = np.unique(service).tolist()
    if not takes.any() or len(services) < 2:
        return
    count = np.bincount(snapshot.pods.node[pods], minlength=len(nodes)).astype(np.float64)
    fair = math.ceil(len(pods) / np.count_nonzero(takes))
    places = np.flatnonzero(takes | (count > 0))
    domain = np.full(len(nodes), -1, dtype=np.int32)
    domain[places] = np.arange(len(places))
    rule = LandingRule(only=takes, even=Evenness(domain=domain, count=count[places]))
    of_node = snapshot.pods.node[pods]
    chosen = ((count > fair) & in_scope)[of_node]
    named = _named(snapshot, services, service[chosen], of_node[chosen])
    for on_it in groups(snapshot.pods.node, members=cheapest_first(snapshot, pods[chosen])):
        number, names = next(named)
        if number < 2:
            continue  # copies of one service are left to RemoveDuplicates
        over = len(on_it) - fair
        reason = f"{number} services that {why} ({names}) have {len(on_it)} pods here, {fair} would be even"
        yield over, some_pods(view, on_it, reason, wanted=over, landing=rule)


def _named(snapshot: ClusterSnapshot, services: list[int], service: Ints, node: Ints) -> Iterator[tuple[int, str]]:
    """Number of services on each node and the first few by name, by ascending node.

    `services`: top owners; `service` and `node` (pods,): top owner and node of each pod.
    """
    owners = snapshot.owners
    named = sorted((f"{owners[top].namespace}/{owners[top].name}", top) for top in services)
    rank = np.zeros(len(owners), dtype=np.int64)
    rank[[top for _, top in named]] = np.arange(len(named))
    pairs = np.unique(node.astype(np.int64) * len(named) + rank[service])
    starts = np.append(np.flatnonzero(np.diff(pairs // len(named), prepend=-1)), len(pairs)).tolist()
    ranks = (pairs % len(named)).tolist()
    for first, end in pairwise(starts):
        some = [named[each][0] for each in ranks[first : min(end, first + NAMED_AT_MOST)]]
        yield end - first, ", ".join(some) + (", …" if end - first > NAMED_AT_MOST else "")
