"""One series of the lab's Prometheus."""

from dataclasses import dataclass

from rebalancer.model.notation.arrays import Bools, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One series. Arrays are (times,)."""

    labels: dict[str, str]
    node: str
    """The node whose faults apply to it."""
    values: Floats
    present: Bools
    raw: bool = False
    """Scraped, rather than recorded by a rule: its sample time stands still when its target does."""


def node_labels(address: str) -> dict[str, str]:
    """Labels of node-exporter's series."""
    return {"instance": f"{address}:9100", "job": "node-exporter"}
