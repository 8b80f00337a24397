"""`rebalancer backtest`: how well each predictor would have forecast recorded CPU, or the cluster's own last days."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rebalancer.bootstrap.backtest import backtest_history
from rebalancer.cli.common import (
    ContextOption,
    KubeconfigOption,
    Output,
    OutputOption,
    print_json,
    read_policy,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.backtest_plot import write_picture
from rebalancer.cli.output.backtest_report import document, print_report
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.traces import read_traces
from rebalancer.forecast.backtest.backtest import Backtest, backtest
from rebalancer.forecast.backtest.own_days import LEAST_CLOSED_DAYS
from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.forecast import Forecast

SEED, DAYS, MOST_DAYS = 1, 15, 30
PICTURES = (".svg", ".html")


def backtest_command(
    context: typer.Context,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces",
            envvar="REBALANCER_TRACES",
            help="A folder of CSV files `timestamp,value`: 5-minute steps, CPU in percent of one machine.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            "-f",
            envvar="REBALANCER_POLICY",
            help="The policy file: compare on the cluster's own last days instead, each pool by its own marks.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int,
        typer.Option("--days", help=f"With --policy: so many closed days, {LEAST_CLOSED_DAYS} to {MOST_DAYS}."),
    ] = DAYS,
    output: OutputOption = Output.TABLE,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Write a picture to this file (.svg or .html): losses, one node, forecast against actual."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="With --traces: of the clusters that are made of them.")
    ] = SEED,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
) -> None:
    """Compare the predictors, each day forecast from earlier days only: on recorded CPU (--traces: nodes of several
    pods that come and go), or on this cluster's own history (--policy: the pods that are on each node now; read from
    Prometheus, kept in REBALANCER_HISTORY_DIR). Proposes weights of the days for each pool."""
    if plot is not None and plot.suffix not in PICTURES:
        raise ConfigError(f"--plot {plot}: expected a name that ends with {' or '.join(PICTURES)}")
    if not LEAST_CLOSED_DAYS <= days <= MOST_DAYS:
        raise ConfigError(f"--days {days}: expected {LEAST_CLOSED_DAYS} to {MOST_DAYS}")
    traces, policy = _one_source(context, traces, policy)
    used: dict[str, Any]
    if policy is not None:
        loaded = read_policy(policy)
        settings = settings_for(kubeconfig=kubeconfig, context=kube_context)
        with TerminalProgress() as progress:
            result = backtest_history(loaded, settings, days=days, progress=progress)
        section, used = loaded.forecast, {"cluster": loaded.cluster, "days": days}
    else:
        assert traces is not None
        section = Forecast()
        result, used = _of_traces(traces, seed)
    if plot is not None:
        write_picture(result, plot)
    if output is Output.JSON:
        print_json({**document(result, section), **used})
    else:
        print_report(stdout_console(), result, section, of_traces=policy is None)


def _of_traces(folder: Path, seed: int) -> tuple[Backtest, dict[str, Any]]:
    read = read_traces(folder)
    with TerminalProgress() as progress:
        result = backtest(read, seed=seed, step=lambda done, total: progress.step("Forecasting days", done, total))
    return result, {"traces": sorted(read), "seed": seed}


def _one_source(context: typer.Context, traces: Path | None, policy: Path | None) -> tuple[Path | None, Path | None]:
    """(traces, policy), one of them None. What stands on the command line counts more than a variable."""
    if traces is None and policy is None:
        raise ConfigError("expected --traces FOLDER, or --policy FILE for the cluster's own history")
    if traces is None or policy is None:
        return traces, policy
    typed = [name for name in ("traces", "policy") if _typed(context, name)]
    if len(typed) == 2:
        raise ConfigError("--traces and --policy: expected one of them")
    return (None, policy) if typed == ["policy"] else (traces, None)


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
