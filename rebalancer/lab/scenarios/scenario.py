"""A practice cluster in a short form for nodes and workloads, in YAML or Python.

`node(...)` and `workload(...)` are the builders for tests; a YAML file has the same fields. Unknown fields are errors.
Scenarios that ship with the package stand in `scenarios/`.
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from rebalancer.lab.loads.cpu import CpuModel, MemoryModel
from rebalancer.lab.scenarios.specs import NodeSpec, Spec, WorkloadSpec
from rebalancer.lab.scenarios.steps import Step
from rebalancer.model.notation.decoding import convert
from rebalancer.model.notation.quantity import parse_quantity

T = TypeVar("T")


class ScenarioError(ValueError):
    """An invalid scenario; one line."""


class Scenario(Spec, frozen=True, kw_only=True):
    """A practice cluster."""

    name: str = "lab"
    nodes: tuple[NodeSpec, ...] = ()
    workloads: tuple[WorkloadSpec, ...] = ()
    steps: tuple[Step, ...] = ()
    """Scheduled events."""
    remove_empty_after_seconds: float | None = None
    """A simple autoscaler, see `autoscaler.py`; none when absent."""
    priority_classes: dict[str, int] = {}
    start_seconds: float = 20.0
    """From bound to Ready."""
    stop_seconds: float = 10.0
    """From deletionTimestamp to gone."""
    pull_bytes_per_second: float | None = None
    """Bandwidth of image pulls on a node; pulls take no time when absent."""
    scheduler: Literal["default", "differs"] = "default"
    """`differs`: other weights, a sample of a few nodes, a view that is some seconds old; see `scheduler.py`."""
    rate_window_seconds: float = 300.0
    """Window of Prometheus' means: a departed pod is still measured for this long."""
    anchor_hour: float | None = None
    """Hour of the day that the CPU curves start at. Absent: the lab clock's hour (UTC)."""
    history_days: float = 8.0


def node(name: str, **fields: Any) -> NodeSpec:
    """A node; fields as in `NodeSpec`, taints as mappings or `TaintSpec`."""
    return _convert({"name": name, **fields}, NodeSpec, f"node {name}")


def workload(name: str, **fields: Any) -> WorkloadSpec:
    """A workload; fields as in `WorkloadSpec`. `cpu` may be a number: the cores that each pod uses, steadily; so may
    `memory`, in bytes, or be a quantity."""
    if isinstance(fields.get("cpu"), int | float):
        fields["cpu"] = CpuModel(base=float(fields["cpu"]))
    if isinstance(fields.get("memory"), int | float | str):
        fields["memory"] = MemoryModel(base_bytes=parse_quantity(str(fields["memory"])))
    return _convert({"name": name, **fields}, WorkloadSpec, f"workload {name}")


def scenario(*, nodes: tuple[NodeSpec, ...] | list[NodeSpec], workloads: Any = (), **fields: Any) -> Scenario:
    """A scenario from builders."""
    return Scenario(nodes=tuple(nodes), workloads=tuple(workloads), **fields)


def names() -> tuple[str, ...]:
    """The scenarios that ship with the package."""
    folder = resources.files("rebalancer.lab") / "scenarios"
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by name, or a YAML file by path. Raises ScenarioError."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ScenarioError(f"{path}: no such scenario file")
        return parse(path.read_bytes(), str(path))
    if name_or_path not in names():
        raise ScenarioError(f"no scenario {name_or_path!r}; there are {', '.join(names())}, or give a .yaml file")
    return parse((resources.files("rebalancer.lab") / "scenarios" / f"{name_or_path}.yaml").read_bytes(), name_or_path)


def parse(text: bytes, source: str) -> Scenario:
    """A scenario from YAML. A plain number for `cpu` or a quantity for `memory` of a workload is its base. Raises
    ScenarioError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ScenarioError(f"{source}: expected a mapping")
    document.setdefault("name", source)
    for each in document.get("workloads") or ():
        if isinstance(each, dict) and isinstance(each.get("cpu"), int | float):
            each["cpu"] = {"base": each["cpu"]}
        if isinstance(each, dict) and isinstance(each.get("memory"), int | float | str):
            try:
                each["memory"] = {"base_bytes": parse_quantity(str(each["memory"]))}
            except ValueError as error:
                raise ScenarioError(f"{source}: {error}") from None
    return _convert(document, Scenario, source)


def _convert(fields: Mapping[str, Any], type_: type[T], source: str) -> T:
    try:
        return convert(_plain(fields), type_)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{source}: {error}") from None


def _plain(value: Any) -> Any:
    """Nested specs as plain data, so that one strict conversion checks everything."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
