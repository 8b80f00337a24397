"""`rebalancer explain`: the scheduling and eviction decisions about one pod or one node."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rebalancer.cli.common import unknown
from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, options
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.kinds import kind_of, plain_name

if TYPE_CHECKING:
    from rebalancer.model.cluster.snapshot import ClusterSnapshot
    from rebalancer.planner.explain.context import ExplainContext


class KindGroup(TyperGroup):
    """`explain node/NAME` is `explain node NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """With the words of kubectl."""
        kind, slash, name = args[0].partition("/")
        words = [kind_of(kind) or kind, *([name] if slash else []), *args[1:]]
        return super().resolve_command(ctx, words)


app = typer.Typer(
    help="Explain the decisions about a pod or a node.",
    no_args_is_help=True,
    cls=KindGroup,
)


AllOption = Annotated[bool, typer.Option("--all", help="Show all nodes or pods instead of the first of a long list.")]


@contextmanager
def observed_cluster(invocation: Invocation) -> "Iterator[ExplainContext]":
    """The cluster and the result of a dry cycle. Writes nothing."""
    policy = invocation.policy
    with invocation.planning() as cycle_context:
        from rebalancer.cycle.observe.observation import find
        from rebalancer.cycle.plan.planning import new_admission
        from rebalancer.cycle.run import run_cycle
        from rebalancer.planner.explain.context import ExplainContext

        cycle = run_cycle(cycle_context, policy, dry_run=True)
        seen = cycle.observation
        yield ExplainContext(
            snapshot=seen.snapshot,
            usage=seen.usage,
            pools=seen.node_pools.names,
            found=cycle.found if cycle.report.stopped is None else find(seen, policy, parts=cycle_context.parts),
            admission=new_admission(cycle_context, seen, policy),
            report=cycle.report,
            config=cycle_context.scheduler,
            placement=cycle.planner.placement,
            now=seen.now,
            cpu=seen.cpu.pods,
            leaks=cycle_context.forecasts.memory_leaks(seen.snapshot, seen.now),
        )


@app.command("pod")
@options(*CLUSTER, *TABLES)
def pod(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="Name of the pod.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the pod.")] = None,
    all_nodes: AllOption = False,
) -> None:
    """Explain whether a run would evict a pod, and where to.

    For each node: the filter of kube-scheduler that rejects the pod, or its scores.
    """
    space, _, short = plain_name(name, ["pod"]).rpartition("/")
    if space and namespace is not None and space != namespace:
        raise ConfigError(f"{name}: expected the namespace once, got also -n {namespace}")
    space = space or namespace or "default"
    with observed_cluster(invocation) as scene:
        from rebalancer.cli.output.explanations import pod_document, print_pod
        from rebalancer.cli.output.formats import Shown
        from rebalancer.planner.explain.pods import explain_pod, find_pod

        found = find_pod(scene.snapshot, space, short)
        if found is None:
            raise _unknown_pod(scene.snapshot, space, short)
        explained = explain_pod(scene, found)
    invocation.show(
        lambda: Shown(
            document=pod_document(explained),
            draw=lambda screen: print_pod(screen, explained, wide=screen.wide, all_nodes=all_nodes),
            rows="nodes",
        )
    )


def _unknown_pod(snapshot: "ClusterSnapshot", space: str, name: str) -> ConfigError:
    if space not in snapshot.namespace_labels:
        return unknown("namespace", space, snapshot.namespace_labels)
    pods = snapshot.pods
    there = (pods.names[at] for at in range(len(pods.names)) if snapshot.namespaces[pods.namespace[at]] == space)
    return unknown(f"namespace {space}: pod", name, list(there))


@app.command("node")
@options(*CLUSTER, *TABLES)
def node(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.")],
    all_pods: AllOption = False,
) -> None:
    """Explain why a node is hot, and which of its pods may go.

    For each pod the decision and its reason; for each service why its pods are scheduled to this node.
    """
    with observed_cluster(invocation) as scene:
        from rebalancer.cli.output.explanations import node_document, print_node
        from rebalancer.cli.output.formats import Shown
        from rebalancer.planner.explain.nodes import explain_node

        index = scene.snapshot.node_index.get(plain_name(name, ["node"]))
        if index is None:
            raise unknown("node", name, scene.snapshot.nodes.names)
        explained = explain_node(scene, index, strategies=[each.name for each in invocation.policy.strategies])
    invocation.show(
        lambda: Shown(
            document=node_document(explained),
            draw=lambda screen: print_node(screen, explained, wide=screen.wide, all_pods=all_pods),
            rows="pods",
        )
    )
