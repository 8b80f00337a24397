"""`rebalancer backtest`: rolling-origin evaluation of the predictors, on recorded CPU or the cluster's own history."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.cli.common import read_policy
from rebalancer.cli.invocation import TABLES, Invocation, options
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.resource_names import CPU

if TYPE_CHECKING:
    from rebalancer.forecast.backtest.backtest import Backtest

SEED, DAYS, MOST_DAYS = 1, 15, 30
PICTURES = (".svg", ".html")


@options("kubeconfig", "context", *TABLES)
def backtest_command(
    invocation: Invocation,
    command: typer.Context,
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--traces",
            envvar="REBALANCER_TRACES",
            metavar="FOLDER",
            help="Folder of CSV files `timestamp,value`: 5-minute steps, CPU in percent of one machine. Repeat it for "
            "several folders; REBALANCER_TRACES separates them by colons.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            "-f",
            envvar="REBALANCER_POLICY",
            help="Path to the policy file: evaluate the cluster's own history, each pool with its own thresholds.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int,
        typer.Option("--days", help=f"With --policy: number of closed days, at most {MOST_DAYS}."),
    ] = DAYS,
    resource: Annotated[
        str, typer.Option("--resource", help="With --policy: cpu, memory, or another resource with thresholds.")
    ] = CPU,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Path of a plot to write (.svg or .html): losses, one node, forecasts against actuals."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="With --traces: seed of the clusters composed from them.")
    ] = SEED,
) -> None:
    """Compare forecast predictors by rolling-origin evaluation: each day is forecast from earlier days only. The data
    is recorded CPU (--traces, composed into nodes of several pods) or the history of this cluster (--policy: the pods
    that are on each node now, read from Prometheus, kept in REBALANCER_HISTORY_DIR). Proposes day weights for each
    pool."""
    if plot is not None and plot.suffix not in PICTURES:
        raise ConfigError(f"--plot {plot}: expected a name that ends with {' or '.join(PICTURES)}")
    from rebalancer.forecast.backtest.own_days import LEAST_CLOSED_DAYS

    if not LEAST_CLOSED_DAYS <= days <= MOST_DAYS:
        raise ConfigError(f"--days {days}: expected {LEAST_CLOSED_DAYS} to {MOST_DAYS}")
    folders, policy = _one_source(command, traces or [], policy)
    if resource != CPU and policy is None:
        raise ConfigError(f"--resource {resource}: expected with --policy")
    if plot is not None and len(folders) > 1:
        raise ConfigError(f"--plot {plot}: expected one --traces folder, got {len(folders)}")
    from rebalancer.cli.output.backtest_plot import write_picture
    from rebalancer.cli.output.backtest_report import document, print_folders, print_report
    from rebalancer.cli.output.formats import Shown
    from rebalancer.policy.schema.forecast import Forecast

    if len(folders) > 1:
        compared = [(folder, *_of_traces(folder, seed)) for folder in folders]
        documents = [
            {"traceFolder": str(folder), **document(each, Forecast()), **used} for folder, each, used in compared
        ]
        of_folders = [(str(folder), each) for folder, each, _ in compared]
        invocation.show(
            lambda: Shown(
                document={"traceFolders": documents, "seed": seed},
                draw=lambda screen: print_folders(screen, of_folders),
                rows="traceFolders",
            )
        )
        return
    used: dict[str, Any]
    if policy is not None:
        from rebalancer.bootstrap.commands.backtest import backtest_history
        from rebalancer.cli.output.progress import TerminalProgress

        loaded, settings = read_policy(policy), invocation.settings
        with TerminalProgress() as progress:
            result = backtest_history(loaded, settings, days=days, progress=progress, resource=resource)
        section, used = loaded.forecast, {"cluster": loaded.cluster, "days": days}
    else:
        section = Forecast()
        result, used = _of_traces(folders[0], seed)
    if plot is not None:
        write_picture(result, plot)
    invocation.show(
        lambda: Shown(
            document={**document(result, section), **used},
            draw=lambda screen: print_report(screen, result, section, of_traces=policy is None),
            rows="predictors",
        )
    )


def _of_traces(folder: Path, seed: int) -> "tuple[Backtest, dict[str, Any]]":
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cli.traces import read_traces
    from rebalancer.forecast.backtest.backtest import backtest

    read = read_traces(folder)
    with TerminalProgress() as progress:
        result = backtest(read, seed=seed, step=lambda done, total: progress.step("Forecasting days", done, total))
    return result, {"traces": sorted(read), "seed": seed}


def _one_source(command: typer.Context, traces: list[Path], policy: Path | None) -> tuple[list[Path], Path | None]:
    """(traces, policy), one of them empty. An option on the command line overrides an environment variable."""
    if not traces and policy is None:
        raise ConfigError("expected --traces FOLDER, or --policy FILE for the cluster's own history")
    if not traces or policy is None:
        return traces, policy
    typed = [name for name in ("traces", "policy") if _typed(command, name)]
    if len(typed) == 2:
        raise ConfigError("--traces and --policy: expected one of them")
    return ([], policy) if typed == ["policy"] else (traces, None)


def _typed(command: typer.Context, name: str) -> bool:
    source = command.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
