"""Options that most commands share, and what they lead to: the policy, the settings, the connections."""

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from rebalancer.cli.common import Output, read_policy
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.bootstrap.process.settings import Settings
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cycle.context import CycleContext
    from rebalancer.model.cluster.snapshot import ClusterSnapshot
    from rebalancer.policy import RebalancerPolicy

NamespaceOption = Annotated[str | None, typer.Option("--namespace", "-n", help="Show only pods of this namespace.")]
AllNodesOption = Annotated[
    bool, typer.Option("--all-nodes", help="Show every node and finding, also unchanged nodes and long lists.")
]

SelectorOption = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Show only nodes with these labels, for example pool=web,zone!=a."),
]

WATCH_SECONDS = 2.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

Shared = Literal["policy", "kubeconfig", "context", "database", "verbose", "output", "utc", "watch"]
SHARED: dict[Shared, Any] = {
    "policy": Annotated[
        Path,
        typer.Option(
            "--policy",
            "-f",
            envvar="REBALANCER_POLICY",
            help="Path to the policy file, a ConfigMap or Helm values with one; - for stdin.",
            show_default=False,
        ),
    ],
    "kubeconfig": Annotated[
        str | None, typer.Option("--kubeconfig", help="Path to the kubeconfig file; the default is that of kubectl.")
    ],
    "context": Annotated[str | None, typer.Option("--context", help="Name of the kubeconfig context.")],
    "database": Annotated[
        str | None,
        typer.Option(
            "--database",
            help="Database URL: sqlite:///FILE or postgresql://... [env: REBALANCER_DATABASE] "
            "[default: sqlite:///rebalancer.db]",
        ),
    ],
    "verbose": Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, help="Log to stderr; -vv also each request.", show_default=False),
    ],
    "output": Annotated[
        Output,
        typer.Option("--output", "-o", help="Output format; wide has all columns, csv the rows of the main table."),
    ],
    "utc": Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of local time.")],
    "watch": Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until interrupted.")
    ],
}
DEFAULTS: dict[Shared, Any] = {"policy": inspect.Parameter.empty, "verbose": 0, "utc": False, "watch": False}
TABLES: tuple[Shared, ...] = ("output", "utc")
WATCHED: tuple[Shared, ...] = (*TABLES, "watch")
CLUSTER: tuple[Shared, ...] = ("policy", "kubeconfig", "context", "database", "verbose")
LEDGER: tuple[Shared, ...] = ("policy", "database", "verbose")


class Invocation:
    """The shared options of one call. Files are read and connections opened on first use."""

    def __init__(
        self,
        *,
        policy: Path | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        database: str | None = None,
        verbose: int = 0,
        output: Output = Output.TABLE,
        utc: bool = False,
        watch: bool = False,
    ) -> None:
        self.output, self._watch = output, watch
        if verbose:
            logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG, format=LOG_FORMAT)
        if utc:
            from rebalancer.cli.output.times import use_utc

            use_utc()
        self._policy_path = policy
        self._given = {"database": database, "kubeconfig": kubeconfig, "context": context}

    @property
    def policy_path(self) -> Path:
        """The value of --policy."""
        assert self._policy_path is not None
        return self._policy_path

    @cached_property
    def policy(self) -> "RebalancerPolicy":
        """Raises ConfigError."""
        return read_policy(self.policy_path)

    @cached_property
    def settings(self) -> "Settings":
        """Options over environment variables. Raises ConfigError."""
        return settings_for(**self._given)

    @contextmanager
    def planning(self, *, taints: bool = True) -> "Iterator[CycleContext]":
        """Read-only connections for a cycle, with progress bars. Without `taints` the plan is that of a run that ends
        before the replacements have landed. Raises ConfigError, ConnectError."""
        policy, settings = self.policy, self.settings
        from rebalancer.bootstrap.commands.contexts import planning_context
        from rebalancer.cli.output.progress import TerminalProgress

        with (
            TerminalProgress() as progress,
            planning_context(policy, settings, progress=progress, taints=taints) as context,
        ):
            yield context

    def show(self, look: "Callable[[], Shown]", *, every: float = WATCH_SECONDS) -> None:
        """Prints what `look` returns, with --watch again after each change; a terminal has only the newest."""
        before, live = None, self._watch and sys.stdout.isatty()
        while True:
            began = time.monotonic()
            shown = look()
            took = time.monotonic() - began
            text = shown.text(self.output) if self._watch and not live else None
            if live:
                typer.echo("\033[H\033[2J", nl=False)
            if live or text is None or text != before:
                shown.print(self.output)
            if not self._watch:
                return
            before = text
            sys.stdout.flush()
            time.sleep(max(every, took))  # at most half of the time is spent on reading


def settings_for(**given: str | None) -> "Settings":
    """Options over environment variables. Raises ConfigError for an invalid value."""
    from pydantic import ValidationError

    from rebalancer.bootstrap.process.settings import Settings

    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        # only enumerations and addresses are validated, and no secret is one
        wrong = error.errors(include_url=False)[0]
        what = str(wrong["msg"]).replace("Input should be", "expected").removeprefix("Value error, ")
        raise ConfigError(f"REBALANCER_{str(wrong['loc'][0]).upper()}: {what}, got {wrong['input']!r}") from None


def selected(snapshot: "ClusterSnapshot", selector: str | None) -> list[str]:
    """Names of the nodes that a label selector selects; None selects all. Raises ConfigError for an invalid one."""
    from pydantic import ValidationError

    from rebalancer.model.cluster.match import selector_matches
    from rebalancer.policy.label_selector import parse_selector
    from rebalancer.policy.schema.types import Selector

    try:
        compiled = Selector.model_validate(parse_selector(selector or "")).compiled()
    except (ValidationError, ValueError):
        raise ConfigError(f"-l {selector}: expected a label selector such as pool=web,zone!=a") from None
    nodes = snapshot.nodes
    pairs = zip(nodes.names, nodes.labels, strict=True)
    found = [name for name, labels in pairs if selector_matches(compiled, labels)]
    if selector is not None and not found:
        raise ConfigError(f"-l {selector}: no node has these labels")
    return found


P = ParamSpec("P")


def options(
    *shared: Shared, output: Output = Output.TABLE
) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[..., None]]:
    """Adds the shared options to a command and passes their values as its first argument, an Invocation.

    In the help --policy comes first and the others last. `output` is the default of --output.
    """

    def decorate(command: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(*arguments: P.args, **values: P.kwargs) -> None:
            given: dict[str, Any] = {name: values.pop(name) for name in shared}
            command(Invocation(**given), *arguments, **values)

        own = list(inspect.signature(command).parameters.values())[1:]
        added = {name: _parameter(name, output) for name in shared}
        first = [added.pop("policy")] if "policy" in added else []
        parameters = [*first, *(each.replace(kind=each.KEYWORD_ONLY) for each in own), *added.values()]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _parameter(name: Shared, output: Output) -> inspect.Parameter:
    default = output if name == "output" else DEFAULTS.get(name)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=SHARED[name])
