"""`rebalancer forecast`: predicted CPU peaks of the next 24 hours, or the accuracy of past forecasts."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import unknown
from rebalancer.cli.invocation import CLUSTER, WATCHED, Invocation, SelectorOption, options, selected
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.kinds import plain_name
from rebalancer.model.notation.resource_names import CPU

if TYPE_CHECKING:
    from rebalancer.cli.output.formats import Shown

SINCE = "30d"
WATCH_SECONDS = 60.0


@options(*CLUSTER, *WATCHED)
def forecast(
    invocation: Invocation,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="Show only this node; may be given several times.")
    ] = None,
    selector: SelectorOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the components of each peak.")] = False,
    accuracy: Annotated[
        bool,
        typer.Option("--accuracy", help="Show the accuracy of the daemon's past forecasts; needs only the database."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="With --accuracy: age of the oldest forecasts, at most 90d. [default: 30d]"),
    ] = None,
) -> None:
    """Show the predicted CPU peak of each node in the next 24 hours: the past CPU of the pods that are on it now,
    summed at each time, plus a margin; and the same of memory and of other resources with thresholds. Show the pods
    whose memory grows until they are OOM-killed. The first call fills the history folder (REBALANCER_HISTORY_DIR).
    Changes nothing in the cluster."""
    if accuracy:
        if node or explain or selector is not None:
            raise ConfigError("--node, -l and --explain: expected without --accuracy")
        from rebalancer.cli.output.accuracy import show_accuracy

        show_accuracy(invocation, since=SINCE if since is None else since)
        return
    if since is not None:
        raise ConfigError("--since: expected with --accuracy")
    names = [plain_name(each, ["node"]) for each in node or []]
    invocation.show(lambda: _forecasts(invocation, names, selector, explain=explain), every=WATCH_SECONDS)


def _forecasts(invocation: Invocation, node: list[str], selector: str | None, *, explain: bool) -> "Shown":
    policy, settings = invocation.policy, invocation.settings
    from rebalancer.bootstrap.commands.contexts import planning_context
    from rebalancer.bootstrap.wiring.history import history_keepers, kept_outcomes
    from rebalancer.cli.output.forecasts import forecast_document, print_forecasts
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cycle.isolation import isolated
    from rebalancer.forecast.memory.leaks import find_leaks
    from rebalancer.forecasting.node_forecasts import pooled_forecasts
    from rebalancer.forecasting.resources import resource_of

    with (
        TerminalProgress() as progress,
        planning_context(policy, settings, progress=progress) as context,
        history_keepers(policy, settings, progress=progress) as keepers,
        kept_outcomes(policy, settings) as outcomes,
    ):
        snapshot, of = context.cluster.snapshot(), {}
        for name, keeper in keepers.items():
            resource = resource_of(name, policy, {})
            if resource is not None:
                of[name] = pooled_forecasts(
                    snapshot,
                    keeper,
                    policy,
                    clock=context.clock,
                    ledger=context.ledger,
                    outcomes=outcomes,
                    resource=resource,
                )
        memory = keepers["memory"].kept().days if "memory" in keepers else ()
        leaks, notes = isolated(
            "memory leaks are not known", lambda: find_leaks(memory, snapshot, now=context.clock.now())
        )
    found, forecasts = of.pop(CPU)
    leaks, forecasts = leaks or (), replace(forecasts, notes=(*forecasts.notes, *notes))
    if node or selector is not None:
        known = [each.forecast.node for each in found]
        for name in node:
            if name not in known:
                raise unknown("node", name, known)
        chosen = set(selected(snapshot, selector)) & set(node or known)
        found = [each for each in found if each.forecast.node in chosen]
        leaks = tuple(each for each in leaks if each.node in chosen)
        of = {
            name: ([each for each in some if each.forecast.node in chosen], rest) for name, (some, rest) in of.items()
        }
    return Shown(
        document=forecast_document(found, forecasts, of, leaks),
        draw=lambda screen: print_forecasts(screen, found, forecasts, of, leaks, explain=explain),
        rows="nodes",
    )
