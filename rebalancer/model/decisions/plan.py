"""Findings of strategies, loads that the planner balances, and the report of a cycle."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.proposals import Proposal
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.notation.document import LEFT_OUT, Shown, TextOrNull
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, Refusal

AT_ITS_PEAK = " at its peak"
"""Ends the name of a resource of `Loads` that is a predicted peak, not a measurement."""

PEAK = f"cpu{AT_ITS_PEAK}"
"""The predicted peak of CPU."""

WEEK = "cpu at the week's peak"
"""The same of the coming week."""

PREDICTED = (PEAK, WEEK)
"""The predicted ones of CPU."""


def is_predicted(resource: str) -> bool:
    """Whether a resource of `Loads` is a prediction, of CPU or another."""
    return resource in PREDICTED or resource.endswith(AT_ITS_PEAK)


MIN_RELIEF = 0.02
"""Least relief of a move, as a share of the excess; a pod that relieves less is refused with NoRelief."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The load that a strategy balances, in one or more resources, and its thresholds.

    Real CPU is one resource, and so are others with thresholds; `source: Requests` has three (cpu, memory, pods). All
    figures, thresholds too, are in the resource's own unit (millicores, bytes, pieces), so that a share is never
    rounded. NaN = not known, not evaluated.
    """

    resources: tuple[str, ...]
    node: Floats
    """(nodes, resources) effective load: measured, corrected for recent evictions and arrivals."""
    room: Floats
    """(nodes, resources) the whole of a share: capacity for real CPU, allocatable for requests."""
    high: Floats
    """(nodes, resources) a node above it in any resource is hot."""
    target: Floats
    """(nodes, resources) a hot node is cooled to it; no target node may exceed it."""
    low: Floats
    """(nodes, resources) while no node is under it in all resources, there is no room."""
    pod: Floats
    """(pods, resources) load that the pod adds to a node."""
    relief: Floats | None = None
    """(pods, resources) load that the pod takes off its node, if different; None = the same."""
    measured: bool = True
    """Whether the loads are real usage; otherwise requests."""
    of_all: Floats | None = None
    """(pods, resources) the same where all that may go together do, if different; None = the same."""

    @property
    def relieved_by_all(self) -> Floats:
        """(pods, resources) load that the pod takes off its node where nothing is left that could grow."""
        return self.relieved if self.of_all is None else self.of_all

    @property
    def relieved(self) -> Floats:
        """(pods, resources) load that the pod takes off its node."""
        return self.pod if self.relief is None else self.relief

    @property
    def over(self) -> NDArray[np.bool_]:
        """(nodes,) over `high` in any resource."""
        out: NDArray[np.bool_] = np.asarray((self.node > self.high).any(axis=1), dtype=np.bool_)
        return out

    def hot_by(self, node: int) -> list[str]:
        """Measured resources by which a node is over `high` now; none by requests."""
        if not self.measured:
            return []
        over = self.node[node] > self.high[node]
        return [name for name, hot in zip(self.resources, over, strict=True) if hot and not is_predicted(name)]

    @property
    def hot(self) -> NDArray[np.bool_]:
        """(nodes,) over `high` now, predicted peaks apart."""
        now = [not is_predicted(name) for name in self.resources]
        out: NDArray[np.bool_] = np.asarray((self.node > self.high)[:, now].any(axis=1), dtype=np.bool_)
        return out


class Goal(StrEnum):
    """What a finding requires."""

    COOL = "cool"
    """Evict candidates until the node is at its target; the planner chooses them."""
    REMOVE = "remove"
    """Evict the required number of candidates, in the order given."""
    EMPTY = "empty"
    """Evict all candidates, or none if one of them may not be evicted."""
    ROOM = "room"
    """Evict the fewest candidates whose room lets a pending pod be bound to the node, or none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evenness:
    """Pods of one group, counted in domains that should hold equal numbers.

    Findings of one group share one; the planner counts their moves in. A move must make the domains more even: the
    target node's domain holds at least two fewer than the domain that the pod leaves. So no sequence of moves returns
    to its start.
    """

    domain: Ints
    """(nodes,) the node's domain; -1 = none, no pod of the group may land there."""
    count: Floats
    """(domains,) pods of the group there now."""
    skew: int = 1
    """Greatest surplus over the emptiest domain that is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandingRule:
    """Target nodes that resolve a finding, besides the rules of every move (fits, stays under its target)."""

    elsewhere: bool = True
    """The replacement must not return to the node that it leaves. False: any new pod resolves the finding."""
    only: NDArray[np.bool_] | None = None
    """(nodes,) nodes that resolve it; None = all."""
    even: Evenness | None = None
    """None = no group to be evened out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceExcess:
    """A resource that a node is hot by; shares are 0..1."""

    resource: str
    share: float
    high: float
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A node that a strategy reports for evictions. A strategy never evicts, counts or reads limits."""

    strategy: str
    node: int
    pool: str
    reason: str
    """A sentence with the numbers."""
    candidates: Ints
    """Indices of pods on the node; for REMOVE best first, otherwise the planner orders them."""
    cpu_share: float = float("nan")
    """COOL: the share that is too high, and its thresholds; NaN for other goals."""
    urgent: bool = False
    """COOL: it comes first, and doesn't wait for a better move."""
    high: float = float("nan")
    target: float = float("nan")
    resource: str = CPU
    """COOL: the resource of these shares."""
    others: tuple[ResourceExcess, ...] = ()
    """COOL: the other measured resources that are too high."""
    goal: Goal = Goal.COOL
    wanted: int | None = None
    """REMOVE: the number of pods of `among` to evict; None = all candidates that may go. ROOM: the most that may go."""
    among: Ints | None = None
    """REMOVE with `wanted`: pods that count, evicted for any finding. They may be on other nodes, and need not be
    candidates. None = the candidates."""
    in_order: bool = False
    """COOL: the candidates are taken in the order given."""
    landing: LandingRule = LandingRule()
    makes_room: bool = False
    """The finding requires room on the node: a pending pod that would take it does not refuse a move."""
    room_for: int | None = None
    """ROOM: index of the pending pod. Findings for the same pod follow each other; room is made on one of their
    nodes."""
    recurs: bool = False
    """REMOVE: the reason recurs by nature (age, an operator's choice), so a lineage may be evicted repeatedly."""
    broken: bool = False
    """The candidates do no work as they are: guards for pods that are not Ready, finished, or their service's last do
    not apply."""

    @property
    def excesses(self) -> tuple[ResourceExcess, ...]:
        """COOL: every resource that is too high, `resource` first; empty for other goals."""
        if not math.isfinite(self.cpu_share):
            return ()
        first = ResourceExcess(resource=self.resource, share=self.cpu_share, high=self.high, target=self.target)
        return (first, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """A candidate that was not evicted, or a node that was not evaluated (`namespace` and `name` are empty)."""

    node: str
    namespace: str
    name: Annotated[str, Shown(name="pod")]
    code: Reason
    message: str
    next_at: Annotated[float | None, LEFT_OUT] = None
    """As in `Refusal`."""
    cpu_millicores: Annotated[float | None, LEFT_OUT] = None
    """CPU that its eviction would have taken off the node; None = not known."""
    setting: TextOrNull = ""
    value: TextOrNull = ""
    """As in `Refusal`."""


class Trigger(StrEnum):
    """What started a cycle."""

    MANUAL = "manual"
    PERIODIC = "periodic"
    ALERT = "alert"
    FORECAST = "forecast"
    APPROVAL = "approval"
    """A proposal was approved."""
    RESTORE = "restore"
    """Evictions that a restored database lacked, counted again; nothing is evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceShare:
    """A node's share of a resource besides CPU before and as planned; None = not known."""

    resource: str
    before: Annotated[float | None, Shown(name="share_before")]
    planned: Annotated[float | None, Shown(name="share_planned")]
    """Mean over the draws of the plan's landings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A node's CPU share before as measured, as planned, and as measured afterwards."""

    name: str
    pool: TextOrNull
    cpu_before: Annotated[float | None, Shown(name="cpu_share_before")]
    cpu_planned: Annotated[float | None, Shown(name="cpu_share_planned")]
    """Mean over the draws of the plan's landings, of the load that decisions are made by: the measurement still shows
    pods that have left, and little of those that have arrived."""
    cpu_planned_p99: Annotated[float | None, Shown(name="cpu_share_planned_p99")] = None
    """99th percentile over the same draws; None = the mean is certain."""
    cpu_after: Annotated[float | None, Shown(name="cpu_share_after")] = None
    """None = not measured."""
    hot: bool = False
    """In any resource."""
    hot_by: tuple[str, ...] = ()
    """The resources that it is hot by."""
    changed: Annotated[bool, LEFT_OUT] = False
    """Whether the cycle's evictions change its load."""
    high: Annotated[float | None, LEFT_OUT] = None
    """Share of real CPU over which it is hot; None = it was not evaluated."""
    resources: tuple[ResourceShare, ...] = ()
    """Of the resources besides CPU that pools have thresholds of."""

    def before(self, resource: str) -> float | None:
        """Share of a resource before; None = not known."""
        if resource == CPU:
            return self.cpu_before
        return next((each.before for each in self.resources if each.resource == resource), None)


NODE_COLUMNS = tuple(each.name for each in fields(NodeLine) if each.name in Nodes.columns)
"""The fields of `NodeLine` that are columns of `Nodes`: they are filled and shown by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScore:
    """What a plan is worth."""

    hot_node_minutes: float
    """That it removes in the next hour, as if loads stayed; each weighs from 0.5 just over `high` to 1 at the full
    capacity."""
    price: float
    """Of its evictions, in ordinary ones."""


def total_score(scores: Iterable[PlanScore | None]) -> PlanScore | None:
    """The sum; None where there is none."""
    known = [each for each in scores if each is not None]
    if not known:
        return None
    return PlanScore(
        hot_node_minutes=sum(each.hot_node_minutes for each in known), price=sum(each.price for each in known)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingHotNode:
    """A hot node that the plan leaves over its target, and why."""

    name: str
    pool: str
    share_planned: float
    """Share of the node's capacity in `resource`."""
    code: Reason
    """The reason that keeps most of its load there."""
    message: str
    pod: str = ""
    """Namespace and name of the largest pod with this reason; empty = none."""
    setting: str = ""
    """Policy key that would help most; empty = none would."""
    value: str = ""
    """A value of it that would do; empty = not known."""
    resource: str = CPU
    """The resource that it stays hot by."""


@dataclass(slots=True, kw_only=True)
class CycleReport:
    """Observations, decisions and evictions of one cycle: what the CLI prints and the database keeps."""

    id: str
    cluster: str
    trigger: Trigger
    dry_run: bool
    started_at: float
    finished_at: float | None = None
    nodes: list[NodeLine] = field(default_factory=list)
    findings: list[tuple[Finding, str]] = field(default_factory=list)
    """(finding, node name)"""
    soft_tainted: dict[str, str] = field(default_factory=dict)
    """Node -> why it carries our soft taint while the plan runs."""
    cordons_before: dict[str, str] = field(default_factory=dict)
    """Node -> reason of our cordon when the cycle began: `steering.CORDONS`."""
    cordons: dict[str, str] = field(default_factory=dict)
    """The same while the plan runs."""
    progress: dict[str, int] = field(default_factory=dict)
    """Maintenance nodes: state (`drained`, `draining`, `pending`) -> how many."""
    evictions: list[Eviction] = field(default_factory=list)
    not_made: frozenset[str] = frozenset()
    """UIDs of the pods that only parts which don't act would evict, where other parts act."""
    score: PlanScore | None = None
    """None where nothing was planned."""
    proposals: list[Proposal] = field(default_factory=list)
    """Those that have the evictions of the parts in `mode: Approve`."""
    remaining: list[RemainingHotNode] = field(default_factory=list)
    refusals: list[PodRefusal] = field(default_factory=list)
    limits_left: dict[str, int] = field(default_factory=dict)
    """Kind of scope -> evictions left in its tightest limit, of global, cluster, pools and levels."""
    spare_cpu: dict[str, float] = field(default_factory=dict)
    """Pool -> millicores that its nodes have left under `high`, wherever its pods run; negative where they lack as
    much."""
    stages: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds of the machine's clock."""
    notes: list[str] = field(default_factory=list)
    """Why the cycle as a whole did nothing, or less than it could."""
    stopped: Refusal | None = None
    """The data was not safe to act on."""
    interrupted: Refusal | None = None
    """Evictions ended before the plan was done: lease lost, API server throttling or refusing."""
