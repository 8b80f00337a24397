"""Objects of the cluster that can't be read, or not in full.

An obstacle is evidence of what is there and unknown. It protects what it may concern, and nothing else: the pods of an
owner that can't be read stay, the pods of every other one don't.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NAMESPACED_RULES = frozenset({"PodDisruptionBudget", "ResourceQuota", "HorizontalPodAutoscaler"})
"""Kinds that select pods of their namespace. Which ones isn't known of one that can't be read, so it concerns all."""

LONGEST_CAUSE = 300
"""Characters."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Obstacle:
    """One object, and why it can't be read."""

    kind: str
    namespace: str
    """Empty for kinds without namespaces."""
    name: str
    cause: str
    """One line: the field, and what is wrong with it."""

    @property
    def object(self) -> str:
        """`Pod shop/web-0`, `Node n1`"""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def __str__(self) -> str:
        return f"{self.object}: {self.cause}"


def one_line(text: str) -> str:
    """Text of another's as a cause: in one line without control characters, cut where it is long."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * LONGEST_CAUSE]).split())
    return line if len(line) <= LONGEST_CAUSE else f"{line[: LONGEST_CAUSE - 1]}…"


def by_object(obstacles: Iterable[Obstacle]) -> Mapping[tuple[str, str, str], Obstacle]:
    """(kind, namespace, name) -> obstacle."""
    return {(each.kind, each.namespace, each.name): each for each in obstacles}


def by_namespace(obstacles: Iterable[Obstacle]) -> Mapping[str, Obstacle]:
    """Namespace -> an obstacle that concerns all of its pods."""
    out: dict[str, Obstacle] = {}
    for each in obstacles:
        if each.kind in NAMESPACED_RULES:
            out.setdefault(each.namespace, each)
        elif each.kind == "Namespace":
            out.setdefault(each.name, each)
    return out
