"""Loader of the policy file: parses and validates bytes; every mistake is one line with file, line and field."""

from collections.abc import Callable

from pydantic import BaseModel

from rebalancer.model.errors import ConfigError
from rebalancer.policy.document import Document
from rebalancer.policy.retired import retired_keys
from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies import PluginStrategy


def load_policy(
    data: bytes, *, source: str, args_of: Callable[[str], type[BaseModel]] | None = None
) -> RebalancerPolicy:
    """Parse and validate a policy. `source` is the file name in messages. `args_of` returns the model of a plugin's
    arguments by its name, or raises ConfigError; without it plugin arguments are not validated.

    Raises ConfigError with a line for each mistake; retired keys are reported before all others.
    """
    return checked_policy(Document.read(data, source=source, kind="RebalancerPolicy"), args_of=args_of)


def checked_policy(document: Document, *, args_of: Callable[[str], type[BaseModel]] | None = None) -> RebalancerPolicy:
    """Validate a parsed policy, as `load_policy` does."""
    if renamed := [str(document.mistake(at, what)) for at, what in retired_keys(document.value)]:
        raise ConfigError("\n".join(renamed))
    if document.value.get("kind") == "DeschedulerPolicy":
        raise document.mistake(("kind",), "expected RebalancerPolicy: `rebalancer policy import` converts this file")
    policy = document.checked(RebalancerPolicy, document.value)
    for index, strategy in enumerate(policy.strategies):
        if args_of is not None and isinstance(strategy, PluginStrategy):
            try:
                args = args_of(strategy.name)
            except ConfigError as error:
                raise document.mistake(("strategies", index, "name"), str(error)) from None
            document.checked(args, strategy.args, at=("strategies", index, "args"))
    return policy
