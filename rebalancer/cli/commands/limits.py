"""`rebalancer limits`, `windows`, `pause`, `resume`, `status`: how many are left, when, and who stopped it."""

import getpass
import time
from typing import Annotated, Any

import typer

from rebalancer.bootstrap.contexts import planning_context, read_cluster
from rebalancer.bootstrap.database import open_ledger
from rebalancer.cli.common import (
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    Output,
    OutputOption,
    PolicyOption,
    print_json,
    read_policy,
    say,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.tables import plain_table
from rebalancer.constraints.limits import clock_time
from rebalancer.constraints.windows import ChangeWindows
from rebalancer.cycle.limits_overview import LimitLine, limit_lines, service_windows, window_lines
from rebalancer.model.errors import ConfigError
from rebalancer.model.limits import SCOPE_SYNTAX, Scope
from rebalancer.policy.schema.limits import format_bytes
from rebalancer.policy.schema.types import format_duration, parse_duration

ScopeArgument = Annotated[str, typer.Argument(help=f"{SCOPE_SYNTAX}.")]


def limits(
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Every scope with its limits: used, left, and when the next eviction may be."""
    loaded = read_policy(policy)
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    with TerminalProgress() as progress, planning_context(loaded, settings, progress=progress) as cycle_context:
        lines = limit_lines(cycle_context, loaded)
    if output is Output.JSON:
        print_json({"schemaVersion": "1", "limits": [_limit_json(line) for line in lines]})
        return
    table = plain_table("Limits", "SCOPE", "LIMIT", "USED", "LEFT", "NEXT")
    for line in lines:
        table.add_row(
            str(line.scope),
            line.what,
            format_bytes(line.used) if line.in_bytes else str(line.used),
            format_bytes(line.left) if line.in_bytes else str(line.left),
            "now" if line.left else ("when one has landed" if line.next_at is None else clock_time(line.next_at)),
        )
    stdout_console().print(table)


def _limit_json(line: LimitLine) -> dict[str, Any]:
    return {
        "scope": line.scope.kind,
        "key": line.scope.key,
        "limit": line.what,
        "unit": "bytes" if line.in_bytes else "evictions",
        "used": line.used,
        "left": line.left,
        "nextAt": line.next_at,
    }


def windows(
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    services: Annotated[
        bool, typer.Option("--services", help="Also those that services carry in an annotation; reads the cluster.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="With --services: those of this namespace only.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="With --services: those of all namespaces (the default).")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """For each scope with change windows: open or closed, until when, and the next opening."""
    loaded = read_policy(policy)
    if namespace is not None and all_namespaces:
        raise ConfigError("-n and -A: expected one of them")
    if not services and (namespace is not None or all_namespaces):
        raise ConfigError("-n and -A: expected them with --services, other windows belong to no namespace")
    now = time.time()
    book = ChangeWindows.of_policy(loaded)
    lines = window_lines(book, now=now)
    if services:
        with TerminalProgress() as progress:
            snapshot = read_cluster(settings_for(kubeconfig=kubeconfig, context=context), progress=progress)
        lines += service_windows(snapshot, book, namespace=namespace, now=now)
    if output is Output.JSON:
        found = [
            {
                "scope": scope.kind,
                "key": scope.key,
                "open": state.open,
                "until": state.until,
                "nextOpen": state.next_open,
                "because": state.because,
            }
            for scope, state, _ in lines
        ]
        print_json({"schemaVersion": "1", "windows": found})
        return
    if not lines:
        say(
            "no change windows: anything may move at any time"
            + ("" if services else " (services may carry their own: --services shows them)")
        )
        return
    table = plain_table("Change windows", "SCOPE", "NOW", "NEXT OPENING", "BECAUSE")
    for scope, state, text in lines:
        following = "-" if state.open else ("never" if state.next_open is None else clock_time(state.next_open))
        table.add_row(str(scope), text, following, state.because)
    stdout_console().print(table)


def pause(
    scope: ScopeArgument,
    policy: PolicyOption,
    reason: Annotated[str, typer.Option("--reason", help="Why; everybody sees it.", show_default=False)],
    lasting: Annotated[
        str | None, typer.Option("--for", help="How long, for example 2h; without it until resumed.")
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Stop evictions in a scope. Kept in the database, so every replica and cluster that shares it sees it."""
    loaded = read_policy(policy)
    at = parse_scope(scope, loaded.cluster)
    try:
        seconds = None if lasting is None else parse_duration(lasting)
    except ValueError as error:
        raise ConfigError(f"--for: {error}, got {lasting!r}") from None
    with open_ledger(loaded, settings_for(database=database)) as ledger:
        until = None if seconds is None else ledger.now() + seconds
        ledger.pause(at, reason=reason, created_by=getpass.getuser(), until=until)
    say(f"paused: {at}, " + ("until resumed" if seconds is None else f"for {format_duration(seconds)}"))


def resume(scope: ScopeArgument, policy: PolicyOption, database: DatabaseOption = None) -> None:
    """End the pauses of a scope."""
    loaded = read_policy(policy)
    at = parse_scope(scope, loaded.cluster)
    with open_ledger(loaded, settings_for(database=database)) as ledger:
        ended = ledger.resume(at)
    say(f"{at}: {ended} pause(s) ended" if ended else f"{at}: was not paused")


def status(policy: PolicyOption, output: OutputOption = Output.TABLE, database: DatabaseOption = None) -> None:
    """What is paused, given up or on its way."""
    loaded = read_policy(policy)
    with open_ledger(loaded, settings_for(database=database)) as ledger:
        pauses, backoffs, in_flight = ledger.pauses(), ledger.backoffs(), ledger.open_evictions()
    if output is Output.JSON:
        print_json(
            {
                "schemaVersion": "1",
                "pauses": [
                    {"scope": each.scope.kind, "key": each.scope.key, "reason": each.reason, "who": each.created_by}
                    | {"until": each.until}
                    for each in pauses
                ],
                "gaveUp": [
                    {"service": each.service_identity, "node": each.node, "until": each.until, "count": each.count}
                    for each in backoffs
                ],
                "inFlight": [
                    {
                        "namespace": each.namespace,
                        "pod": each.pod,
                        "node": each.node,
                        "at": each.planned_at,
                        "late": each.late,
                    }
                    for each in in_flight
                ],
            }
        )
        return
    console = stdout_console()
    if not (pauses or backoffs or in_flight):
        console.print("Nothing is paused, given up or on its way.")
    if pauses:
        table = plain_table("Paused", "SCOPE", "UNTIL", "BY", "REASON")
        for each in pauses:
            until = "resumed" if each.until is None else clock_time(each.until)
            table.add_row(str(each.scope), until, each.created_by, each.reason)
        console.print(table)
    if backoffs:
        table = plain_table("Given up", "SERVICE", "NODE", "UNTIL", "TIMES", "REASON")
        for memory in backoffs:
            table.add_row(
                memory.service_identity, memory.node, clock_time(memory.until), str(memory.count), memory.reason
            )
        console.print(table)
    if in_flight:
        table = plain_table("In flight", "POD", "FROM", "SINCE", "DEADLINE", "")
        for flying in in_flight:
            table.add_row(
                f"{flying.namespace}/{flying.pod}",
                flying.node,
                clock_time(flying.planned_at),
                clock_time(flying.deadline_at),
                "late" if flying.late else "",
            )
        console.print(table)


def parse_scope(text: str, cluster: str) -> Scope:
    """`pool/general` -> the scope as the ledger keys it. Raises ConfigError."""
    found = Scope.parse(text, cluster)
    if found is None:
        raise ConfigError(f"scope {text!r}: expected {SCOPE_SYNTAX}")
    return found
