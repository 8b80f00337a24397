"""PodTopologySpread: hard constraints as a filter, soft ones and the system's defaults as a score.

Source: Kubernetes v1.37, plugins/podtopologyspread (`common.go`, `filtering.go`, `scoring.go`, `plugin.go`) and
plugins/helper/spread.go. The default constraints' selector is the pod's ReplicaSet's, StatefulSet's or
ReplicationController's, which selects just its own pods, together with those of its Services.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, Requirement, SpreadConstraint
from rebalancer.model.cluster.scheduler import SchedulerProfile
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Counted, Group, Kind
from rebalancer.placement.cluster.nodes import EPS, HOSTNAME, Domains

SYSTEM_DEFAULTS = (
    SpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway", max_skew=3),
    SpreadConstraint(topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway", max_skew=5),
)
SPREADING_OWNERS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})

NO_MATCH = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{NO_MATCH} (missing required label)"


class Feasible:
    """The feasible nodes of a pod, with their counts by domain."""

    def __init__(self, nodes: Bools) -> None:
        nodes.flags.writeable = False  # shared
        self.nodes = nodes
        self.count = int(np.count_nonzero(nodes))
        self._domains: dict[int, Rows] = {}

    def domains(self, domains: Domains) -> Rows:
        """(domains + 1,) how many of these nodes are in each domain; the last, without the label."""
        counts = self._domains.get(id(domains))
        if counts is None:
            counts = np.bincount(domains.at[self.nodes], minlength=len(domains.values) + 1)
            self._domains[id(domains)] = counts  # a node table keeps its domains
        return counts


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of one kind of pod."""

    key: str
    domains: Domains
    max_skew: int
    min_domains: int
    group: Group
    """The pods that it counts."""
    counts_itself: bool
    eligible: Bools
    """(nodes,) nodes whose pods and domains count."""
    everywhere: bool
    """All nodes are eligible."""
    there: Bools
    """(domains + 1,) domains with an eligible node."""


@dataclass(frozen=True, slots=True)
class Spread:
    """PodTopologySpread of one kind of pod."""

    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    needs_all_keys: bool
    """Nodes without every soft constraint's label score 0; not so for the system's defaults."""
    labelled: Bools
    """(nodes,) nodes with every soft constraint's label."""
    all_labelled: bool

    @property
    def matters(self) -> list[Counted]:
        """Pods that matter to it."""
        return [Counted(each.group, each.key, each.eligible) for each in (*self.hard, *self.soft)]


def compile_spread(
    board: Board,
    kind: Kind,
    template: PodTemplate,
    profile: SchedulerProfile,
    *,
    masks: "EligibleNodes",
    fits_affinity: Bools,
    tolerated: Bools,
) -> Spread:
    """`fits_affinity`, `tolerated` (nodes,): by the pod's node affinity and selector, and by hard taints."""
    group: Group | None = None
    constraints = template.topology_spread
    if not constraints:
        constraints = SYSTEM_DEFAULTS if profile.default_constraints is None else profile.default_constraints
        group = _default_group(board, kind, template)
        constraints = constraints if group is not None else ()
    hard = [each for each in constraints if each.when_unsatisfiable == "DoNotSchedule"]
    soft = [each for each in constraints if each.when_unsatisfiable == "ScheduleAnyway"]
    needs_all_keys = bool(template.topology_spread) or profile.default_constraints is not None

    def compiled(each: SpreadConstraint, keys: tuple[str, ...]) -> Constraint:
        rules = [board.nodes.labelled(keys)]
        if each.node_affinity_policy == "Honor":
            rules.append(fits_affinity)
        if each.node_taints_policy == "Honor":
            rules.append(tolerated)
        eligible, everywhere, there = masks.of(each.topology_key, rules)
        selector = _with_keys(each, template)
        return Constraint(
            key=each.topology_key,
            domains=board.nodes.domains(each.topology_key),
            max_skew=each.max_skew,
            min_domains=each.min_domains or 1,
            group=group or _selected(board, selector, kind),
            counts_itself=group is not None or selector_matches(selector, template.labels),
            eligible=eligible,
            everywhere=everywhere,
            there=there,
        )

    hard_keys, soft_keys = tuple(each.topology_key for each in hard), tuple(each.topology_key for each in soft)
    labelled = board.nodes.labelled(soft_keys)
    return Spread(
        hard=tuple(compiled(each, hard_keys) for each in hard),
        soft=tuple(compiled(each, soft_keys if needs_all_keys else ()) for each in soft),
        needs_all_keys=needs_all_keys,
        labelled=labelled,
        all_labelled=not soft_keys or bool(labelled.all()),
    )


def by_services_alone(snapshot: ClusterSnapshot, kind: Kind, template: PodTemplate, profile: SchedulerProfile) -> bool:
    """Whether nothing but Services can spread such pods."""
    if template.topology_spread or profile.default_constraints == () or _spreads_by_owner(snapshot, kind):
        return False
    return "PodTopologySpread" in profile.weights or "PodTopologySpread" in profile.filters


def _spreads_by_owner(snapshot: ClusterSnapshot, kind: Kind) -> bool:
    return kind.owner >= 0 and snapshot.owners[kind.owner].kind in SPREADING_OWNERS


def _default_group(board: Board, kind: Kind, template: PodTemplate) -> Group | None:
    """The pods that default constraints count; None where they don't apply."""
    snapshot = board.snapshot
    labels = snapshot.service_labels(snapshot.namespaces[kind.namespace], template.labels)
    if not _spreads_by_owner(snapshot, kind):
        return _selected(board, LabelSelector(match_labels=dict(labels)), kind) if labels else None
    return board.kinds.owned_by(kind.owner, labels)


class EligibleNodes:
    """Masks shared by the constraints of many templates with the same rules."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._masks: dict[object, tuple[list[Bools], Bools, bool, Bools]] = {}

    def of(self, key: str, rules: list[Bools]) -> tuple[Bools, bool, Bools]:
        """(nodes,) where all rules hold, whether that is everywhere, and (domains + 1,) the domains of `key` that have
        such a node."""
        name = (key, *map(id, rules))
        found = self._masks.get(name)
        if found is None:
            eligible = np.logical_and.reduce(rules)
            there = self._board.nodes.domains(key).sums(eligible.astype(np.float64)) > 0
            # the rules are kept, so that their ids stay unique
            found = self._masks[name] = (rules, eligible, bool(eligible.all()), there)
        return found[1:]


def _with_keys(constraint: SpreadConstraint, template: PodTemplate) -> LabelSelector | None:
    selector = constraint.label_selector
    keys = [key for key in constraint.match_label_keys if key in template.labels]
    if selector is None or not keys:
        return selector
    added = tuple(Requirement(key=key, operator="In", values=(template.labels[key],)) for key in keys)
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *added))


def _selected(board: Board, selector: LabelSelector | None, kind: Kind) -> Group:
    if selector is None or (not selector.match_labels and not selector.match_expressions):
        return Group(("none",), {})  # an empty selector counts no pods
    return board.kinds.selected((selector,), (frozenset({kind.namespace}),))


def allows(board: Board, spread: Spread) -> tuple[Bools, Bools]:
    """(nodes,) twice: every hard constraint's label is there; no hard constraint would be broken."""
    labelled = np.ones(len(board.nodes), dtype=np.bool_)
    kept = labelled.copy()
    for each in spread.hard:
        counts = board.present_staying(board.tally(each.group))
        sums = each.domains.sums(np.where(each.eligible, counts, 0.0))
        enough = np.count_nonzero(each.there) >= each.min_domains
        fewest = float(sums[each.there].min()) if enough else 0.0
        labelled &= each.domains.here
        kept &= sums[each.domains.at] + each.counts_itself - fewest <= each.max_skew + EPS
    return labelled, kept


def points(
    board: Board, spread: Spread, feasible: Feasible, sampled: float, *, with_raw: bool = True
) -> tuple[Floats, Floats]:
    """(nodes,) raw and normalised score; `sampled` is the share of the feasible nodes that the scheduler scores.

    Minimum and maximum are taken over all feasible nodes: the sample isn't known. Without `with_raw` the first array is
    undefined.
    """
    scored = feasible
    if spread.needs_all_keys and not spread.all_labelled:
        scored = Feasible(feasible.nodes & spread.labelled)
    if not scored.count:
        return np.zeros(len(board.nodes)), np.zeros(len(board.nodes))
    if len(spread.soft) == 1 and spread.soft[0].key != HOSTNAME:
        # all nodes of a domain score the same
        domains = spread.soft[0].domains
        raw = np.floor(_of_domains(board, spread.soft[0], scored) + 0.5)
        score = _turned(raw, raw[scored.domains(domains) > 0])
        raw, score = raw[domains.at] if with_raw else raw, score[domains.at]
    else:
        total = np.zeros(len(board.nodes))
        for each in spread.soft:
            if each.key == HOSTNAME:
                own = board.present_staying(board.tally(each.group)) * np.log(float(scored.count) * sampled + 2.0) + (
                    each.max_skew - 1
                )
                total += own if each.domains.alone else np.where(each.domains.here, own, 0.0)
            else:
                total += _of_domains(board, each, scored)[each.domains.at]
        raw = np.floor(total + 0.5)
        score = _turned(raw, raw if scored.count == len(raw) else raw[scored.nodes])
    if scored is feasible:
        return raw, score
    return np.where(scored.nodes, raw, 0.0) if with_raw else raw, np.where(scored.nodes, score, 0.0)


def _of_domains(board: Board, constraint: Constraint, scored: Feasible) -> Floats:
    """(domains + 1,) raw score of one constraint."""
    tally, domains = board.tally(constraint.group), constraint.domains
    counts = tally.staying + tally.booked
    found = domains.sums(counts if constraint.everywhere else np.where(constraint.eligible, counts, 0.0))
    size = float(np.count_nonzero(scored.domains(domains)))
    own: Floats = found * np.log(size + 2.0) + (constraint.max_skew - 1)
    own[-1] = 0.0
    return own


def _turned(raw: Floats, compared: Floats) -> Floats:
    """`raw` reversed: the minimum of `compared` gets 100."""
    least, most = float(compared.min()), float(compared.max())
    score: Floats = np.full(len(raw), 100.0) if most == 0 else np.floor(100.0 * (most + least - raw) / most)
    return score
