"""What the plugins have worked out about one kind of pod: everything that does not change with the board."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.notation.arrays import Floats
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Counted, Kind
from rebalancer.placement.cluster.taints import hard_taints
from rebalancer.placement.plugins.affinity import Attraction, Terms
from rebalancer.placement.plugins.images import image_locality
from rebalancer.placement.plugins.node_rules import NodeRules, NodeRulesCache
from rebalancer.placement.plugins.requests import Requests, Supply
from rebalancer.placement.plugins.spread import EligibleNodes, Spread, compile_spread
from rebalancer.placement.plugins.volumes import Volumes, claims_of, compile_volumes


@dataclass(frozen=True, eq=False)
class PodRules:
    """The rules for pods of one kind."""

    kind: Kind
    template: PodTemplate
    nodes: NodeRules
    requests: Requests
    spread: Spread
    attraction: Attraction
    volumes: Volumes
    images: Floats
    """(nodes,) ImageLocality."""

    @property
    def profile(self) -> SchedulerProfile:
        """The profile of the pod's scheduler."""
        return self.nodes.profile

    @cached_property
    def filter_class(self) -> tuple[object, ...]:
        """Equal for kinds that the filters can't tell apart."""
        attraction, volumes = self.attraction, self.volumes
        return (
            id(self.requests),
            id(self.nodes.static),
            tuple(group.key for group in volumes.claims),
            tuple((group.key, own) for group, _, own in volumes.attached),
            tuple(driver for driver, _ in volumes.drivers),
            tuple((key, group.key) for key, group in (*attraction.away, *attraction.avoided)),
            None if self.only_gets_worse else self.kind,
        )

    @cached_property
    def depends_on_pods(self) -> bool:
        """Whether a filter depends on other pods, besides requests and ports."""
        return bool(self.volumes.filters or self.spread.hard or self.attraction.filters)

    @property
    def only_gets_worse(self) -> bool:
        """Whether no additional pod can make a node feasible."""
        return not self.attraction.near and not self.spread.hard

    @cached_property
    def matters(self) -> tuple[Counted, ...]:
        """Pods that change filters or scores by more than plain requests."""
        parts = (self.spread, self.attraction, self.volumes, self.requests)
        return tuple(each for part in parts for each in part.matters)


class PodRulesCache:
    """The rules of each kind, for the board's current hard taints and cordons."""

    def __init__(self, board: Board, config: SchedulerConfig) -> None:
        self._board, self._config = board, config
        self._supply = Supply(board)
        self._requests: dict[object, Requests] = {}
        self._images: dict[object, Floats] = {}
        self._look()

    @cached_property
    def terms(self) -> Terms:
        """Of all pods of the board."""
        return Terms(self._board)

    def _look(self) -> None:
        board = self._board
        self._hard, self._unschedulable = hard_taints(board.taints), board.unschedulable
        self._nodes = NodeRulesCache(board, self._config)
        self._eligible = EligibleNodes(board)
        self._rules: dict[Kind, PodRules] = {}

    def start_over(self) -> None:
        """After `Board.start_over`: take over the board's taints and cordons."""
        board = self._board
        if hard_taints(board.taints) == self._hard and (board.unschedulable == self._unschedulable).all():
            self._nodes.see_soft_taints(board.taints)
        else:
            self._look()

    def steer(self, nodes: Sequence[int]) -> None:
        """After `Board.steer` of these nodes."""
        self._nodes.see_soft_taints(self._board.taints, nodes)

    def of(self, kind: Kind) -> PodRules:
        """The rules of a kind."""
        rules = self._rules.get(kind)
        if rules is None:
            rules = self._rules[kind] = self._compile(kind)
        return rules

    def of_nodes(self, kind: Kind) -> NodeRules:
        """What nodes mean to a kind, without looking at pods."""
        snapshot, template = self._board.snapshot, self._board.kinds.template_of(kind)
        space = snapshot.namespaces[kind.namespace]
        claims = ((space, name) for name in claims_of(template))
        return self._nodes.of(template, tuple(claim for claim in claims if claim in snapshot.volume_nodes))

    def _compile(self, kind: Kind) -> PodRules:
        board = self._board
        template, nodes = board.kinds.template_of(kind), self.of_nodes(kind)
        profile = nodes.profile
        fits = {"fits_affinity": nodes.fits_affinity, "tolerated": nodes.tolerated}
        spread = compile_spread(board, kind, template, profile, masks=self._eligible, **fits)
        demand = board.kinds.demand[board.kinds.number_of(kind)]
        asked = (
            demand.tobytes(),
            template.scored_on_arrival,
            tuple(sorted(template.extended_requests.items())),
            template.host_ports,
            profile.name,
        )
        requests = self._requests.get(asked)
        if requests is None:
            requests = self._requests[asked] = Requests(board, self._supply, profile, demand, template)
        images = (template.images, template.volume_images)
        if images not in self._images:
            snapshot = board.snapshot
            self._images[images] = image_locality(
                snapshot.nodes.images, template, len(board.nodes), minor=snapshot.minor
            )
        attraction, volumes = self.terms.compile(kind, template, profile), compile_volumes(board, kind, template)
        return PodRules(kind, template, nodes, requests, spread, attraction, volumes, self._images[images])
