"""The assessments that are due, made by a command where no daemon makes them."""

from collections.abc import Sequence

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.observe.ledger_state import landed_since
from rebalancer.model.records.effect import Assessment


def assess_due(active: Active) -> Sequence[Assessment]:
    """One turn of the evaluation loop; none without the Lease. Raises ConnectError, ConfigError, UnsafeDataError.

    Replacements that have become Ready since the last run are recorded first. Without that they would count as not
    Ready, since no cycle has run in between.
    """
    context, evaluation = active.context, active.evaluation
    if evaluation is None or context.ledger is None:
        return ()
    if evaluation.effect.due(context.clock.now()):
        landed_since(context.ledger, active.policy.safety, context.cluster)
    return evaluation.turn()
