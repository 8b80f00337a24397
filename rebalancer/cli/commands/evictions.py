"""`rebalancer evictions`: who evicted what, whichever component it was."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import Output, parse_moment
from rebalancer.cli.invocation import TABLES, Invocation, NamespaceOption, options
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rebalancer.cli.output.formats import Shown
    from rebalancer.model.records.cluster_evictions import ClusterEviction

NOTE = (
    "By Events, which the API server keeps for an hour by default. A caller of the Eviction API that writes none, such "
    "as kubectl drain, is not listed."
)


@options("kubeconfig", "context", "verbose", *TABLES)
def evictions(
    invocation: Invocation,
    namespace: NamespaceOption = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show pods of all namespaces (the default).")
    ] = False,
    since: Annotated[str, typer.Option("--since", help="Start: an age such as 30m, or a time.")] = "1h",
) -> None:
    """Show who evicted what, rebalancer or any other component.

    By the Events of the cluster: preemption by kube-scheduler, kubelets, taints, autoscalers, deschedulers. Changes
    nothing.
    """
    if namespace is not None and all_namespaces:
        raise ConfigError("-n and -A: expected one of them")
    start = parse_moment("--since", since, time.time())
    from rebalancer.bootstrap.commands.cluster_evictions import cluster_evictions
    from rebalancer.cli.output.progress import TerminalProgress

    with TerminalProgress() as progress:
        found = cluster_evictions(invocation.settings, since=start, progress=progress)
    of = [each for each in found if namespace in (None, each.namespace)]
    invocation.show(lambda: _shown(of, wide=invocation.output is Output.WIDE))


def _shown(found: "Sequence[ClusterEviction]", *, wide: bool) -> "Shown":
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import UNKNOWN, Screen, plain_table, print_notes
    from rebalancer.cli.output.times import moment

    def draw(screen: Screen) -> None:
        if not found:
            screen.print("No eviction.")
        elif wide:
            table = plain_table("Evictions", "TIME", "EVICTOR", "POD", "SERVICE", "NODE", "REASON", "MESSAGE")
            for each in found:
                pod = f"{each.namespace}/{each.pod}"
                table.add_row(
                    moment(each.at), each.evictor, pod, each.service or UNKNOWN, each.node or UNKNOWN, each.reason,
                    each.message,
                )  # fmt: skip
            screen.print(table)
        else:
            groups: dict[tuple[str, str, str], list[ClusterEviction]] = {}
            for each in found:
                service = each.service or f"{each.namespace}/{each.pod}"
                groups.setdefault((each.evictor, service, each.reason), []).append(each)
            table = plain_table("Evictions", "EVICTOR", "SERVICE", "EVICTED", "LAST", "REASON", right=("EVICTED",))
            for (evictor, service, reason), pods in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
                table.add_row(evictor, service, str(len(pods)), moment(pods[-1].at), reason)
            screen.print(table)
        print_notes(screen, [NOTE])

    return Shown(document={"evictions": list(found), "notes": [NOTE]}, draw=draw, rows="evictions")
