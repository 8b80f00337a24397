"""A row of the fault matrix."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row. Each case of a parametrized test is a fault of its own."""

    name: str
    outcome: str
    ends: str
    """How long the outcome lasts after the fault's end."""
    seen: str
    """Log line, metric, check of `/readyz` or reason code."""
    action: str
    tests: tuple[str, ...]
    """Of pytest: `file::test`."""


NEXT_CYCLE = "next cycle"
NOTHING = "nothing"


def fault(
    name: str, outcome: str, *tests: str, ends: str = NEXT_CYCLE, seen: str = NOTHING, action: str = NOTHING
) -> Fault:
    return Fault(name=name, outcome=outcome, ends=ends, seen=seen, action=action, tests=tests)
