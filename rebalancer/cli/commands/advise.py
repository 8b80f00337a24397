"""`rebalancer advise`: configuration of kube-scheduler that suits the observed cluster."""

from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.cli.common import stdout_console
from rebalancer.cli.invocation import CLUSTER, Invocation, options

app = typer.Typer(help="Advise on configuration that makes evictions unnecessary.", no_args_is_help=True)


class Output(StrEnum):
    """Values of `--output`."""

    YAML = "yaml"
    JSON = "json"
    TABLE = "table"


@app.callback()
def root() -> None:
    """Advise on configuration that makes evictions unnecessary."""


@app.command("scheduler")
@options(*CLUSTER)
def scheduler(
    invocation: Invocation,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.YAML,
) -> None:
    """Print a KubeSchedulerConfiguration for this cluster, with the measurements behind each change."""
    from rebalancer.cli.commands.explain import observed_cluster
    from rebalancer.cli.output.advised import advice_document, advised_yaml
    from rebalancer.cli.output.json import print_json
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
    if output is Output.JSON:
        print_json(advice_document(found))
    elif output is Output.TABLE:
        table = plain_table("Advice", "TOPIC", "SUBJECT", "OBSERVATION", "RECOMMENDATION")
        for each in found.advice:
            table.add_row(str(each.topic), each.subject, each.observation, each.recommendation)
        stdout_console().print(table)
    else:
        typer.echo(advised_yaml(found), nl=False)
