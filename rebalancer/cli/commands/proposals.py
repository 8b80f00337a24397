"""`rebalancer proposals`, `approve` and `reject`: plans of the parts in `mode: Approve`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import own_user, say, unknown
from rebalancer.cli.invocation import LEDGER, WATCHED, Invocation, options

if TYPE_CHECKING:
    from rebalancer.cli.output.formats import Shown
    from rebalancer.model.decisions.proposals import Proposal


@options(*LEDGER, *WATCHED)
def proposals(
    invocation: Invocation,
    proposal: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show the evictions of this one.", show_default=False)
    ] = None,
    closed: Annotated[bool, typer.Option("--all", "-a", help="Show those that are over, too.")] = False,
) -> None:
    """Show plans that wait for an approval.

    The daemon proposes the evictions of pools and strategies in `mode: Approve`.
    """
    invocation.show(lambda: _shown(invocation, proposal, closed=closed))


@options(*LEDGER)
def approve(
    invocation: Invocation,
    proposal: Annotated[str, typer.Argument(metavar="ID", help="ID, as `proposals` shows it.")],
) -> None:
    """Approve the evictions of a proposal.

    The daemon begins within five seconds, after the cycle that is running. It makes exactly these evictions, or none if
    anything has changed.
    """
    from rebalancer.bootstrap.wiring.database import open_proposals

    with open_proposals(invocation.policy, invocation.settings) as kept:
        _known(kept.named(proposal), proposal, [each.id for each in kept.all()])
        found = kept.approve(proposal, by=own_user())
    say(f"approved: {found.summary}; to see the result: rebalancer proposals {found.id}")


@options(*LEDGER)
def reject(
    invocation: Invocation,
    proposal: Annotated[str, typer.Argument(metavar="ID", help="ID, as `proposals` shows it.")],
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown with the proposal.", show_default=False)] = "",
) -> None:
    """Reject a proposal, or take an approval back.

    The same evictions are not proposed again before it would have expired.
    """
    from rebalancer.bootstrap.wiring.database import open_proposals

    with open_proposals(invocation.policy, invocation.settings) as kept:
        _known(kept.named(proposal), proposal, [each.id for each in kept.all()])
        found = kept.reject(proposal, by=own_user(), reason=reason)
    say(f"rejected: {found.summary}")


def _shown(invocation: Invocation, name: str | None, *, closed: bool) -> "Shown":
    from rebalancer.bootstrap.wiring.database import open_proposals
    from rebalancer.cli.output.proposals import shown_proposal, shown_proposals
    from rebalancer.model.decisions.proposals import OVER

    with open_proposals(invocation.policy, invocation.settings) as kept:
        if name is None:
            found = kept.all()
            return shown_proposals(found if closed else [each for each in found if each.state not in OVER])
        return shown_proposal(_known(kept.named(name), name, [each.id for each in kept.all()]))


def _known(proposal: "Proposal | None", name: str, ids: Sequence[str]) -> "Proposal":
    """The proposal with this id. Raises ConfigError without one; `ids` are the known ones."""
    if proposal is None:
        raise unknown("proposal", name, ids)
    return proposal
