"""Nodes whose figures still show a pod that has left."""

from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.types import format_duration
from rebalancer.strategies.loads import gone
from rebalancer.strategies.view import StrategyView


def settling(view: StrategyView) -> dict[int, Refusal]:
    """Node index -> how long it waits yet: a whole rate window must lie behind its last move."""
    out: dict[int, Refusal] = {}
    # the youngest move last, so that its waiting time stands
    for move in sorted(gone(view.snapshot, view.recent, leaving=True), key=lambda each: each.at):
        node = view.snapshot.node_index.get(move.node)
        age = view.now - move.at
        # the ledger's clock may be a little ahead; a move from far in the future is another clock's and says nothing
        if node is not None and abs(age) < view.usage.window_seconds:
            waits = format_duration(view.usage.window_seconds - max(age, 0.0))
            out[node] = Refusal.of(Reason.SETTLING, f"{waits} to go")
    return out
