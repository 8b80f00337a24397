"""The values of a policy that are in force, and where each comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rebalancer.model.secrets import redacted
from rebalancer.policy.document import Document
from rebalancer.policy.schema.policy import RebalancerPolicy

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValue:
    """A field that holds a value, or a list of values."""

    field: str
    """As in messages: `pools[0].thresholds.high`."""
    value: Any
    line: int | None
    """Line of the policy file; None for a default."""

    @property
    def shown(self) -> str:
        """For people: `-` for none."""
        match self.value:
            case None:
                return "-"
            case bool():
                return str(self.value).lower()
            case float():
                return f"{self.value:g}"
            case list() | dict():
                return ", ".join(map(str, self.value)) or "-"
        return str(self.value)


def effective_values(policy: RebalancerPolicy, data: bytes, *, source: str) -> list[EffectiveValue]:
    """Every value of the policy that `data` was read as, in the order of the schema. Secrets are redacted."""
    document = Document.read(data, source=source, kind="RebalancerPolicy")
    out = []
    for path, value in _leaves(policy.model_dump(mode="json", by_alias=True), ()):
        field, line = document.place(path)
        shown = redacted(value) if isinstance(value, str) else value
        out.append(EffectiveValue(field=field, value=shown, line=line if _given(document.value, path) else None))
    return out


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for at, each in enumerate(value):
            yield from _leaves(each, (*path, at))
    else:
        yield path, value


def _given(value: Any, path: Path) -> bool:
    """Whether the file has the field."""
    for part in path:
        keys = value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()
        if part not in keys:
            return False
        value = value[part]
    return True
