"""Options that most commands share, and what they lead to: the policy, the settings, the connections."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from rebalancer.cli.common import Output, read_policy
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.bootstrap.settings import Settings
    from rebalancer.cycle.context import CycleContext
    from rebalancer.policy import RebalancerPolicy

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
NamespaceOption = Annotated[str | None, typer.Option("--namespace", "-n", help="Show only pods of this namespace.")]
AllNodesOption = Annotated[
    bool, typer.Option("--all-nodes", "-A", help="Show every node and finding, also unchanged nodes and long lists.")
]

Shared = Literal["policy", "kubeconfig", "context", "database"]
SHARED: dict[Shared, Any] = {
    "policy": Annotated[
        Path,
        typer.Option("--policy", "-f", envvar="REBALANCER_POLICY", help="Path to the policy file.", show_default=False),
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
}
CLUSTER: tuple[Shared, ...] = ("policy", "kubeconfig", "context", "database")
LEDGER: tuple[Shared, ...] = ("policy", "database")


class Invocation:
    """The shared options of one call. Files are read and connections opened on first use."""

    def __init__(
        self,
        *,
        policy: Path | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        database: str | None = None,
    ) -> None:
        self._policy_path = policy
        self._given = {"database": database, "kubeconfig": kubeconfig, "context": context}

    @property
    def database(self) -> str | None:
        """The value of --database."""
        return self._given["database"]

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
    def planning(self, *, steer: bool = True) -> "Iterator[CycleContext]":
        """Read-only connections for a cycle, with progress bars. Without `steer` the plan is that of a run that ends
        before the replacements have landed. Raises ConfigError, ConnectError."""
        policy, settings = self.policy, self.settings
        from rebalancer.bootstrap.contexts import planning_context
        from rebalancer.cli.output.progress import TerminalProgress

        with (
            TerminalProgress() as progress,
            planning_context(policy, settings, progress=progress, steer=steer) as context,
        ):
            yield context


def settings_for(**given: str | None) -> "Settings":
    """Options over environment variables. Raises ConfigError for an invalid value."""
    from pydantic import ValidationError

    from rebalancer.bootstrap.settings import Settings

    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        # only enumerations are validated, and no secret is one
        wrong = error.errors(include_url=False)[0]
        what = str(wrong["msg"]).replace("Input should be", "expected")
        raise ConfigError(f"REBALANCER_{str(wrong['loc'][0]).upper()}: {what}, got {wrong['input']!r}") from None


P = ParamSpec("P")


def options(*shared: Shared) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[..., None]]:
    """Adds the shared options to a command and passes their values as its first argument, an Invocation.

    In the help --policy comes first and the others last.
    """

    def decorate(command: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(*arguments: P.args, **values: P.kwargs) -> None:
            given: dict[str, Any] = {name: values.pop(name) for name in shared}
            command(Invocation(**given), *arguments, **values)

        own = list(inspect.signature(command).parameters.values())[1:]
        added = {name: _parameter(name) for name in shared}
        first = [added.pop("policy")] if "policy" in added else []
        parameters = [*first, *(each.replace(kind=each.KEYWORD_ONLY) for each in own), *added.values()]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _parameter(name: Shared) -> inspect.Parameter:
    default = inspect.Parameter.empty if name == "policy" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=SHARED[name])
