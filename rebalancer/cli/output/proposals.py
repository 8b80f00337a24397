"""Proposals as tables and documents."""

from collections.abc import Sequence

from rebalancer.cli.output.cycle import target_text
from rebalancer.cli.output.formats import Shown
from rebalancer.cli.output.json import encode
from rebalancer.cli.output.tables import Screen, plain_table, print_paragraph
from rebalancer.cli.output.times import ahead, moment
from rebalancer.model.decisions.proposals import OVER, Proposal


def shown_proposals(proposals: Sequence[Proposal]) -> Shown:
    """A row for each proposal; the document has their evictions too."""

    def draw(screen: Screen) -> None:
        if not proposals:
            screen.print("No proposal.")
            return
        table = plain_table(
            "Proposals", "ID", "STATE", "POOL", "STRATEGY", "EVICTIONS", "EXPIRES", "REASON", right=("EVICTIONS",)
        )
        for each in proposals:
            over, plan = each.state in OVER, each.plan
            expires = moment(each.expires_at) if over else ahead(each.expires_at)
            table.add_row(
                each.id, str(each.state), plan.pool, plan.strategy, str(len(plan.evictions)), expires, why(each)
            )
        screen.print(table)

    return Shown(document={"proposals": proposals}, draw=draw, rows="proposals", version="1")


def shown_proposal(proposal: Proposal) -> Shown:
    """One proposal with its evictions."""

    def draw(screen: Screen) -> None:
        table = plain_table("Evictions", "POD", "FROM", "TO", "REASON")
        for move in proposal.plan.evictions:
            targets = [target_text((each.node, each.probability)) for each in move.target_nodes]
            to = ", ".join(targets) or "none (finished)"
            table.add_row(move.full_name, move.node, to, move.reason)
        screen.print(table)
        print_paragraph(screen, f"{proposal.id}:", sentence(proposal))

    return Shown(document=encode(proposal), draw=draw, rows="evictions", version="1")


def sentence(proposal: Proposal) -> str:
    """`3 evictions from pool a by LowNodeUtilization, Proposed, expires in 25m`."""
    end = "" if proposal.state in OVER else f", expires {ahead(proposal.expires_at)}"
    reason = why(proposal)
    return f"{proposal.summary}, {proposal.state}{end}" + (f": {reason}" if reason else "")


def why(proposal: Proposal) -> str:
    """Who decided it, and its result."""
    by = f"by {proposal.decided_by}" if proposal.decided_by else ""
    return "; ".join(filter(None, (by, proposal.reason)))
