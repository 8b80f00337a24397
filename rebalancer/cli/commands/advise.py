"""`rebalancer advise`: configuration of kube-scheduler that suits the observed cluster."""

from typing import TYPE_CHECKING

import typer

from rebalancer.cli.common import Output
from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, options

if TYPE_CHECKING:
    from rebalancer.cli.output.tables import Screen

app = typer.Typer(help="Advise on configuration that makes evictions unnecessary.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Advise on configuration that makes evictions unnecessary."""


@app.command("scheduler")
@options(*CLUSTER, *TABLES, output=Output.YAML)
def scheduler(invocation: Invocation) -> None:
    """Print a KubeSchedulerConfiguration for this cluster.

    With the measurements behind each change. With `-o yaml` it is a file for kube-scheduler; the other formats have the
    advice behind it.
    """
    from rebalancer.cli.commands.explain import observed_cluster
    from rebalancer.cli.output.advised import advice_document, advised_yaml
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import plain_table
    from rebalancer.planner.advice.advice import advise

    policy = invocation.policy
    with observed_cluster(invocation) as scene:
        found = advise(
            scene.snapshot,
            scene.placement.without_pending(),
            scene.config,
            strategies=policy.strategies,
            pools=scene.pools,
            now=scene.now,
        )
    if invocation.output is Output.YAML:
        typer.echo(advised_yaml(found), nl=False)
        return

    def draw(screen: "Screen") -> None:
        table = plain_table("Advice", "TOPIC", "SUBJECT", "OBSERVATION", "RECOMMENDATION")
        for each in found.advice:
            table.add_row(str(each.topic), each.subject, each.observation, each.recommendation)
        screen.print(table)

    invocation.show(lambda: Shown(document=advice_document(found), draw=draw, rows="advice"))
