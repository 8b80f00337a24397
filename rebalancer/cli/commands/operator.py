"""`rebalancer pause`, `resume`, `resolve` and `status`: the operator state in the database."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import own_user, say, unknown
from rebalancer.cli.invocation import CLUSTER, LEDGER, WATCHED, Invocation, options
from rebalancer.model.decisions.limits import SCOPE_SYNTAX, Scope
from rebalancer.model.errors import ConfigError, RebalancerError

if TYPE_CHECKING:
    from rebalancer.bootstrap.commands.ledger_view import LedgerView
    from rebalancer.cli.output.formats import Shown
    from rebalancer.model.cluster.obstacles import Obstacle
    from rebalancer.model.decisions.eviction import Eviction
    from rebalancer.policy import RebalancerPolicy

ScopeArgument = Annotated[str, typer.Argument(help=f"{SCOPE_SYNTAX}.")]


@options(*LEDGER)
def pause(
    invocation: Invocation,
    scope: ScopeArgument,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown wherever the pause is.", show_default=False)],
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="Duration, for example 2h. Without it the pause lasts until resumed."
        ),
    ] = None,
) -> None:
    """Stop evictions in a scope. The pause is stored in the database and holds for all replicas and clusters that share
    it."""
    policy = invocation.policy
    at = parse_scope(scope, policy.cluster)
    known = {
        "pool": [each.name for each in policy.pools],
        "level": [each.name for each in policy.service_levels.levels],
    }
    if at.name not in known.get(at.kind, [at.name]):
        raise unknown(at.kind, at.name, known[at.kind])
    from rebalancer.bootstrap.wiring.database import open_ledger
    from rebalancer.policy.schema.types import format_duration, parse_duration

    try:
        seconds = None if lasting is None else parse_duration(lasting)
    except ValueError as error:
        raise ConfigError(f"--for: {error}, got {lasting!r}") from None
    with open_ledger(invocation.policy, invocation.settings) as ledger:
        until = None if seconds is None else ledger.now() + seconds
        ledger.pause(at, reason=reason, created_by=own_user(), until=until)
    say(f"paused: {at}, " + ("until resumed" if seconds is None else f"for {format_duration(seconds)}"))


@options(*LEDGER)
def resume(invocation: Invocation, scope: ScopeArgument) -> None:
    """End the pauses of a scope."""
    at = parse_scope(scope, invocation.policy.cluster)
    from rebalancer.bootstrap.wiring.database import open_ledger
    from rebalancer.model.notation.figures import counted

    with open_ledger(invocation.policy, invocation.settings) as ledger:
        ended = ledger.resume(at)
    say(f"{at}: {counted(ended, 'pause')} ended" if ended else f"{at}: not paused")


resolve = typer.Typer(help="Close an eviction in flight by hand.", no_args_is_help=True)


@resolve.callback()
def _resolve() -> None:
    """Makes a group of a single command."""


@resolve.command("eviction")
@options(*LEDGER)
def resolve_eviction(
    invocation: Invocation,
    record: Annotated[int, typer.Argument(metavar="ID", help="ID of an eviction in flight, as `status` shows it.")],
    reason: Annotated[str, typer.Option("--reason", help="Reason, recorded with the eviction.", show_default=False)],
) -> None:
    """Close an eviction in flight, whose replacement is lost.

    The replacement is no longer waited for. The eviction stays counted in limits of evictions per time.
    """
    from rebalancer.bootstrap.wiring.database import open_ledger

    with open_ledger(invocation.policy, invocation.settings) as ledger:
        found = next((each for each in ledger.open_evictions() if each.reserved.record == record), None)
        if found is None:
            raise ConfigError(f"eviction {record}: expected the ID of an eviction in flight (see rebalancer status)")
        ledger.close(record, by=own_user(), reason=reason)
    say(f"closed: the eviction of {found.full_name} from {found.node}")


@options(*CLUSTER, *WATCHED)
def status(invocation: Invocation) -> None:
    """Show pauses, backoffs, evictions in flight, and what has failed. Whether replacements are Ready, and which
    objects can't be read, comes from the cluster; without it evictions are shown as the last cycle recorded them."""
    invocation.show(lambda: _status(invocation))


def _status(invocation: Invocation) -> "Shown":
    from rebalancer.bootstrap.commands.ledger_view import ledger_view
    from rebalancer.cli.output.operator_state import shown_state

    with ledger_view(invocation.policy, invocation.settings) as view:
        ledger = view.ledger
        pauses, backoffs = (ledger.pauses(), ledger.backoffs()) if ledger is not None else ((), ())
        in_flight, obstacles, notes = _by_cluster(view, invocation.policy)
    return shown_state(pauses, backoffs, in_flight, obstacles, [*view.failed_parts, *notes])


def _by_cluster(
    view: "LedgerView", policy: "RebalancerPolicy"
) -> "tuple[Sequence[Eviction], Sequence[Obstacle], list[str]]":
    """Evictions in flight by the cluster, and its obstacles; by the ledger alone, with a note, where it can't be
    read."""
    if view.ledger is None:
        return (), (), []
    recorded = view.ledger.open_evictions()
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cycle.observe.ledger_state import evictions_in_flight
    from rebalancer.cycle.observe.obstacle_notes import obstacles_of
    from rebalancer.policy.pools import NodePools

    try:
        with TerminalProgress() as progress:
            snapshot = view.snapshot(progress)
    except RebalancerError as error:
        ready = "in flight as the last cycle recorded it; which replacements are Ready now is not known"
        notes = [*([ready] if recorded else []), "which objects can't be read is not known"]
        return recorded, (), [f"{note}: {error}" for note in notes]
    obstacles = obstacles_of(snapshot, NodePools.of(policy.pools, snapshot.nodes))
    return evictions_in_flight(view.ledger, policy.safety, snapshot), obstacles, []


def parse_scope(text: str, cluster: str) -> Scope:
    """`pool/general` -> the scope of the ledger. Raises ConfigError."""
    found = Scope.parse(text, cluster)
    if found is None:
        raise ConfigError(f"scope {text!r}: expected {SCOPE_SYNTAX}")
    return found
