"""A proposal that was approved: carried out by a cycle of its own, or refused with what has changed."""

from contextlib import suppress

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.plan.approved import PlanChangedError, approved_proposal, not_made
from rebalancer.cycle.run import execute_cycle
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Proposals
from rebalancer.model.decisions.proposals import Proposal, ProposalState
from rebalancer.model.errors import RebalancerError
from rebalancer.model.parts import cause_of, ends_process
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.fingerprint import policy_hash
from rebalancer.policy.modes import acting_in


def carry_out(
    context: CycleContext, kept: Proposals, policy: RebalancerPolicy, proposal: Proposal, report: CycleReport
) -> None:
    """Make exactly the evictions of an approved proposal, once, or none, and record which. `report` is empty, of the
    cycle `proposal.run`.

    Raises RebalancerError where the cluster couldn't be read: the proposal stays approved, and can be tried again. Once
    its evictions have begun, and after any other error, it is over.
    """
    begun = False

    def begin() -> None:
        nonlocal begun
        if not kept.begin(proposal):
            raise PlanChangedError("it is not approved any more")
        begun = True

    try:
        approved = approved_proposal(proposal, policy, own_hash=policy_hash(policy), begin=begin)
        execute_cycle(context, acting_in(policy, proposal.plan.pool), report, approved=approved)
    except PlanChangedError as error:
        kept.close(proposal, state=ProposalState.REFUSED, reason=error.what)
    except Exception as error:
        # where that can't be written, the next look at what is approved does
        with suppress(RebalancerError):
            if begun:
                kept.close(proposal, state=ProposalState.CARRIED_OUT, reason=f"ended early: {_cause(error)}")
            elif not (isinstance(error, RebalancerError) or ends_process(error)):
                kept.close(proposal, state=ProposalState.REFUSED, reason=_cause(error))
        raise
    else:
        kept.close(proposal, state=ProposalState.CARRIED_OUT, reason=not_made(approved, report))


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, RebalancerError) else cause_of(error)
