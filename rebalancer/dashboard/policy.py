"""Every effective value of the policy in force, for the dashboard."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from rebalancer.model.secrets import MASK, redacted
from rebalancer.policy import RebalancerPolicy
from rebalancer.web.views import PolicyField

SECRET = ("usage.prometheus.headers",)
"""Fields whose values may be credentials."""


def effective_fields(policy: RebalancerPolicy) -> Sequence[PolicyField]:
    """In the order of the schema, with the keys of the policy file. A list is one value, unless it is of sections."""
    return tuple(_fields(policy, policy.model_dump(mode="json", by_alias=True), "", True))


def _fields(section: BaseModel, dumped: Any, prefix: str, from_file: bool) -> Iterator[PolicyField]:
    """`dumped` is the section as JSON; `from_file` whether the section itself is written in the file."""
    for name, info in type(section).model_fields.items():
        key = info.alias or name
        path, value = f"{prefix}{key}", getattr(section, name)
        written = from_file and name in section.model_fields_set
        yield from _values(value, dumped[key], path, written)


def _values(value: Any, dumped: Any, path: str, written: bool) -> Iterator[PolicyField]:
    if isinstance(value, BaseModel):
        yield from _fields(value, dumped, f"{path}.", written)
    elif isinstance(value, Sequence) and any(isinstance(each, BaseModel) for each in value):
        for number, (each, part) in enumerate(zip(value, dumped, strict=True)):
            yield from _values(each, part, f"{path}[{part.get('name', number)}]", written)
    else:
        text = MASK if path in SECRET and dumped else _text(dumped)
        yield PolicyField(path=path, value=redacted(text), from_file=written)


def _text(dumped: Any) -> str:
    if dumped is None:
        return "not set"
    if isinstance(dumped, float):
        return f"{dumped:g}"
    if isinstance(dumped, list) and all(isinstance(each, str) for each in dumped):
        return ", ".join(dumped) or "none"
    return dumped if isinstance(dumped, str) else json.dumps(dumped, ensure_ascii=False) if dumped != {} else "none"
