"""The door before an eviction: how many in a cycle, from a node, of a service.

A first, simple `admit`: it counts in memory, for one cycle. Services whose replacements are missing from earlier
cycles are held back by the guard on unhealthy owners.
"""

from collections import Counter

from rebalancer.model.plan import Move
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import Service
from rebalancer.policy.schema import Limits


class CycleLimits:
    """`model.ports.Admission` for one cycle."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._total = 0
        self._by_node: Counter[int] = Counter()
        self._by_service: Counter[Service] = Counter()

    def refuses(self, move: Move) -> Refusal | None:
        """Why the move would not be admitted now."""
        limits = self._limits
        if self._total >= limits.per_cycle:
            return Refusal.of(Reason.LIMIT_CYCLE, f"{self._total} of {limits.per_cycle}")
        if self._by_node[move.node] >= limits.per_node:
            return Refusal.of(Reason.LIMIT_NODE, f"{self._by_node[move.node]} of {limits.per_node}")
        if self._by_service[move.service] >= limits.per_service_in_flight:
            used = self._by_service[move.service]
            return Refusal.of(Reason.LIMIT_SERVICE, f"{move.service}: {used} of {limits.per_service_in_flight}")
        return None

    def reserve(self, move: Move) -> Refusal | None:
        """Count the move, or say why not."""
        refusal = self.refuses(move)
        if refusal is None:
            self._count(move, 1)
        return refusal

    def refund(self, move: Move) -> None:
        """Uncount a move that certainly did not happen."""
        self._count(move, -1)

    def _count(self, move: Move, by: int) -> None:
        self._total += by
        self._by_node[move.node] += by
        self._by_service[move.service] += by
