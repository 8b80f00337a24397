"""Which metrics PromQL speaks of, and which there are."""

import re

from rebalancer.web.metrics import described

FUNCTIONS = {"histogram_quantile", "min_over_time"}
"""Those with an underscore: metrics without one there aren't."""


def served() -> dict[str, set[str]]:
    """Name of each series of ours, histograms' parts too -> its labels."""
    found: dict[str, set[str]] = {}
    for each in described():
        found[each.name] = set(each.labels)
        if each.type == "histogram":
            found |= {f"{each.name}_{part}": set(each.labels) for part in ("sum", "count")}
            found[f"{each.name}_bucket"] = {*each.labels, "le"}
    return found


def named(expression: str) -> set[str]:
    """Names of metrics and recorded rules in PromQL."""
    plain = re.sub(r'"[^"]*"|\[[^\]]*\]|\{[^}]*\}', " ", expression)
    plain = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", plain)
    return {word for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", plain) if "_" in word} - FUNCTIONS
