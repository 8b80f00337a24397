"""`rebalancer explain`: why a pod is where it is and may or may not leave; why a node is hot and fills up again."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.bootstrap.contexts import planning_context
from rebalancer.cli.common import (
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    PolicyOption,
    print_json,
    read_policy,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.explanations import node_document, pod_document, print_node, print_pod
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cycle.observation import find
from rebalancer.cycle.planning import new_admission
from rebalancer.cycle.run import run_cycle
from rebalancer.model.errors import ConfigError
from rebalancer.planner.explain.nodes import explain_node
from rebalancer.planner.explain.pods import ExplainContext, explain_pod, find_pod
from rebalancer.policy import RebalancerPolicy

app = typer.Typer(help="Why a pod or a node is as it is, with the scheduler's own numbers.", no_args_is_help=True)


class Output(StrEnum):
    """`-o`"""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
AllOption = Annotated[bool, typer.Option("--all", help="Show every node or pod, not only the first of many.")]


@contextmanager
def observed_cluster(
    policy: RebalancerPolicy, *, database: str | None, kubeconfig: str | None, context: str | None
) -> Iterator[ExplainContext]:
    """The cluster and the result of a dry cycle. Writes nothing."""
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    with TerminalProgress() as progress, planning_context(policy, settings, progress=progress) as cycle_context:
        cycle = run_cycle(cycle_context, policy, dry_run=True)
        seen = cycle.observation
        yield ExplainContext(
            snapshot=seen.snapshot,
            usage=seen.usage,
            pools=seen.node_pools.names,
            found=cycle.found if cycle.report.stopped is None else find(seen, policy),
            admission=new_admission(cycle_context, seen, policy),
            report=cycle.report,
            config=cycle_context.scheduler,
            placement=cycle.planner.placement,
            now=seen.now,
        )


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The pod.")],
    policy: PolicyOption,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
    output: OutputOption = Output.TABLE,
    all_nodes: AllOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """For every node: the filter that refuses the pod, or its scores; where it lands; whether a run would evict it."""
    loaded = read_policy(policy)
    space, _, short = name.rpartition("/")
    if space and namespace is not None and space != namespace:
        raise ConfigError(f"{name}: expected the namespace once, got also -n {namespace}")
    space = space or namespace or "default"
    with observed_cluster(loaded, database=database, kubeconfig=kubeconfig, context=context) as scene:
        found = find_pod(scene.snapshot, space, short)
        if found is None:
            raise ConfigError(f"pod {space}/{short}: expected a pod of the cluster (see kubectl get pods -n {space})")
        explained = explain_pod(scene, found)
    if output is Output.JSON:
        print_json(pod_document(explained))
    else:
        print_pod(stdout_console(), explained, wide=output is Output.WIDE, all_nodes=all_nodes)


@app.command("node")
def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The node.")],
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    all_pods: AllOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Whether it is hot and why, who could leave it and why the others can't, and what keeps bringing pods to it."""
    loaded = read_policy(policy)
    with observed_cluster(loaded, database=database, kubeconfig=kubeconfig, context=context) as scene:
        index = scene.snapshot.node_index.get(name)
        if index is None:
            raise ConfigError(f"node {name}: expected a node of the cluster (see kubectl get nodes)")
        explained = explain_node(scene, index, strategies=[each.name for each in loaded.strategies])
    if output is Output.JSON:
        print_json(node_document(explained))
    else:
        print_node(stdout_console(), explained, wide=output is Output.WIDE, all_pods=all_pods)
