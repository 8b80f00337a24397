"""Label selectors as kubectl's `-l` takes them."""

import re
from typing import Any

_TERM = re.compile(
    r"(?P<no>!)?\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)\s*"
    r"(?:(?P<same>==?|!=)\s*(?P<value>[-A-Za-z0-9_.]*)|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*"
)


def parse_selector(text: str) -> dict[str, Any]:
    """`"pool=web,!gpu,zone in (a, b)"` as a label selector of the policy. Raises ValueError if it is invalid."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for term in re.split(r",(?![^()]*\))", text) if text.strip() else []:
        match = _TERM.fullmatch(term.strip())
        if match is None or (match["no"] and (match["same"] or match["set"])):
            raise ValueError(f"expected a label selector such as pool=web,!gpu, got {text!r}")
        key = match["key"]
        if match["set"]:
            values = [each.strip() for each in match["values"].split(",")]
            operator = "In" if match["set"] == "in" else "NotIn"
            expressions.append({"key": key, "operator": operator, "values": values})
        elif match["same"] == "!=":
            expressions.append({"key": key, "operator": "NotIn", "values": [match["value"]]})
        elif match["same"] and labels.get(key, match["value"]) == match["value"]:
            labels[key] = match["value"]
        elif match["same"]:
            expressions.append({"key": key, "operator": "In", "values": [match["value"]]})
        else:
            expressions.append({"key": key, "operator": "DoesNotExist" if match["no"] else "Exists"})
    return {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }
