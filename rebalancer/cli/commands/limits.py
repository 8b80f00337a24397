"""`rebalancer limits` and `windows`: how many evictions are left in each scope, and when evictions are allowed."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import say, unknown
from rebalancer.cli.invocation import CLUSTER, TABLES, WATCHED, Invocation, options
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import Screen


WATCH_SECONDS = 30.0
"""Each look lists the pods, nodes and owners of the cluster."""


@options(*CLUSTER, *WATCHED)
def limits(invocation: Invocation) -> None:
    """Show what is used and left of each limit. With the time of the next possible eviction."""
    invocation.show(lambda: _limits(invocation), every=WATCH_SECONDS)


def _limits(invocation: Invocation) -> "Shown":
    policy, settings = invocation.policy, invocation.settings
    from rebalancer.bootstrap.commands.ledger_view import ledger_view
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cli.output.tables import plain_table
    from rebalancer.cli.output.times import ahead
    from rebalancer.cycle.observe.ledger_state import load_ledger_state
    from rebalancer.cycle.report.limits_overview import limit_lines
    from rebalancer.model.notation.figures import size

    with ledger_view(policy, settings) as view, TerminalProgress() as progress:
        snapshot = view.snapshot(progress)
        ledger_state = load_ledger_state(view.ledger, policy, snapshot, writes=False)
        lines = limit_lines(snapshot, ledger_state, policy, now=view.now())
    found = [
        {
            "scope": line.scope.kind,
            "key": line.scope.key,
            "limit": line.what,
            "unit": "bytes" if line.in_bytes else "evictions",
            **pick(line, "used", "left", "next_at"),
        }
        for line in lines
    ]

    def draw(screen: "Screen") -> None:
        shown = [line for line in lines if screen.wide or not line.unused]
        table = plain_table("Limits", "SCOPE", "LIMIT", "USED", "LEFT", "NEXT")
        for line in shown:
            amount = size if line.in_bytes else str
            following = "when one is Ready" if line.next_at is None else ahead(line.next_at)
            table.add_row(
                str(line.scope), line.what, amount(line.used), amount(line.left), "now" if line.left else following
            )
        if shown:
            screen.print(table)
        if hidden := len(lines) - len(shown):
            of = "limits" if hidden == len(lines) else "other limits" if hidden > 1 else "other limit"
            screen.print(f"Nothing is used of {hidden} {of}; all are shown with -o wide.")

    return Shown(document={"limits": found}, draw=draw, rows="limits", version="1")


@options("policy", "kubeconfig", "context", *TABLES)
def windows(
    invocation: Invocation,
    services: Annotated[
        bool,
        typer.Option("--services", help="Also show change windows in annotations of services; lists the pods."),
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="With --services: only services of this namespace.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="With --services: services of all namespaces (the default).")
    ] = False,
) -> None:
    """Show the change windows of each scope, open or closed. With the end of each, and the next opening."""
    policy = invocation.policy
    if namespace is not None and all_namespaces:
        raise ConfigError("-n and -A: expected one of them")
    if not services and (namespace is not None or all_namespaces):
        raise ConfigError("-n and -A: expected with --services; windows of the policy have no namespace")
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.tables import UNKNOWN, plain_table
    from rebalancer.cli.output.times import ahead
    from rebalancer.constraints.moves.windows import ChangeWindows
    from rebalancer.cycle.report.limits_overview import service_windows, window_lines

    now = time.time()
    book = ChangeWindows.of_policy(policy)
    lines = window_lines(book, now=now)
    if services:
        from rebalancer.bootstrap.commands.contexts import read_cluster
        from rebalancer.cli.output.progress import TerminalProgress

        with TerminalProgress() as progress:
            snapshot = read_cluster(invocation.settings, progress=progress)
        if namespace is not None and namespace not in snapshot.namespace_labels:
            raise unknown("namespace", namespace, snapshot.namespace_labels)
        lines += service_windows(snapshot, book, policy, namespace=namespace, now=now)
    found = [
        {
            "scope": scope.kind,
            "key": scope.key,
            **pick(state, "open", "until", "next_open"),
            "reason": state.because,
        }
        for scope, state, _ in lines
    ]

    def draw(screen: "Screen") -> None:
        if not lines:
            hint = "" if services else " (--services also shows those in annotations of services)"
            say(f"no change windows: evictions are allowed at any time{hint}")
            return
        table = plain_table("Change windows", "SCOPE", "NOW", "NEXT OPENING", "REASON")
        for scope, state, text in lines:
            following = UNKNOWN if state.open else ("never" if state.next_open is None else ahead(state.next_open))
            table.add_row(str(scope), text, following, state.because)
        screen.print(table)

    invocation.show(lambda: Shown(document={"windows": found}, draw=draw, rows="windows"))
