"""`rebalancer assess`: the assessments that are due, where no daemon makes them."""

from typing import TYPE_CHECKING

import typer

from rebalancer.cli.common import UNSAFE_EXIT
from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, options
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.cli.output.tables import Screen


@options(*CLUSTER, *TABLES)
def assess(invocation: Invocation) -> None:
    """Assess evictions that are due, and evaluate the hot-node SLO. For evictions of `run --once`, whose effect no
    daemon measures; evicts nothing. Exits with code 3 when an assessment is due and could not be made."""
    policy, settings = invocation.policy, invocation.settings
    from rebalancer.bootstrap.commands.assessments import assess_due
    from rebalancer.bootstrap.commands.contexts import evaluated_context
    from rebalancer.bootstrap.wiring.database import database_exists, database_shown
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cli.output.tables import UNKNOWN, plain_table, print_notes
    from rebalancer.model.notation.figures import percent

    if not database_exists(settings):
        shown = database_shown(settings)
        raise ConfigError(f"{shown}: no such database; expected the database of earlier runs")
    with TerminalProgress() as progress, evaluated_context(policy, settings, progress=progress) as active:
        evaluation = active.evaluation
        assert evaluation is not None  # with the Lease there is one
        made = list(assess_due(active))
        while evaluation.behind:
            made += evaluation.turn()
        pending = evaluation.effect.due(active.context.clock.now())
    notes = (*evaluation.notes, *evaluation.slo_notes)
    shares = ("before_share", "planned_share", "after_share")
    fields = ("node", "pool", "strategy", "cycle", "step", "resource", "due_at", *shares, "outcome", "late", "detail")

    def draw(screen: "Screen") -> None:
        if made:
            table = plain_table("Assessments", "NODE", "STEP", "RESOURCE", "BEFORE", "PLANNED", "AFTER", "OUTCOME")
            for each in made:
                outcome = f"{each.outcome or UNKNOWN}{', late' if each.late else ''}"
                cells = (percent(getattr(each, name)) for name in shares)
                table.add_row(each.node, each.step, each.resource, *cells, outcome)
            screen.print(table)
        else:
            screen.print("No assessment is made: none is due." if not pending else "No assessment is made.")
        print_notes(screen, notes)

    document = {"assessments": [pick(each, *fields) for each in made], "pending": len(pending), "notes": notes}
    invocation.show(lambda: Shown(document=document, draw=draw, rows="assessments"))
    if pending:
        raise typer.Exit(UNSAFE_EXIT)
