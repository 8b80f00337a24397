"""`rebalancer proposals`: plans of the parts in `mode: Approve`, and what became of them."""

from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import unknown
from rebalancer.cli.invocation import LEDGER, WATCHED, Invocation, options

if TYPE_CHECKING:
    from rebalancer.cli.output.formats import Shown


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


def _shown(invocation: Invocation, name: str | None, *, closed: bool) -> "Shown":
    from rebalancer.bootstrap.wiring.database import open_proposals
    from rebalancer.cli.output.proposals import shown_proposal, shown_proposals
    from rebalancer.model.decisions.proposals import OVER

    with open_proposals(invocation.policy, invocation.settings) as kept:
        if name is None:
            found = kept.all()
            return shown_proposals(found if closed else [each for each in found if each.state not in OVER])
        proposal = kept.named(name)
        if proposal is None:
            raise unknown("proposal", name, [each.id for each in kept.all()])
    return shown_proposal(proposal)
