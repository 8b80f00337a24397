"""The last moment to relieve a node, held against a walk over every minute of a morning with random windows."""

import random
from collections.abc import Mapping, Sequence

import pytest

from tests.planner.scenarios.morning import EXCESS, seen, service, utc, window

DEADLINE = 4 * 60 + 18
"""In minutes after 05:00."""

Rule = tuple[str, Sequence[int], int]
"""allow or deny, minutes of the day at which it starts, minutes that it lasts."""


def some_rules(rng: random.Random) -> tuple[str, list[Rule]]:
    """Windows as an annotation says them, and as the oracle reads them."""
    words: list[str] = []
    rules: list[Rule] = []
    for _ in range(rng.randint(1, 3)):
        kind, lasts = rng.choice(["allow", "deny"]), rng.choice([5, 12, 15, 16, 30, 70, 150])
        minutes, hours = rng.choice([[0], [0, 20, 40], [10, 45]]), rng.choice([list(range(24)), [6, 7, 8], [7], [2, 5]])
        words.append(f"{kind} {','.join(map(str, minutes))} {','.join(map(str, hours))} * * * {lasts}m")
        rules.append((kind, [60 * hour + minute for hour in hours for minute in minutes], lasts))
    return "; ".join(words), rules


def opened(rules: Sequence[Rule], minute: int) -> bool:
    """Whether they are open so many minutes after 05:00."""
    at = 5 * 60 + minute
    holding = [kind for kind, starts, lasts in rules if any(start <= at < start + lasts for start in starts)]
    return "deny" not in holding and ("allow" in holding or all(kind == "deny" for kind, _, _ in rules))


def walked(open_at: Mapping[str, Sequence[bool]], relief: Mapping[str, float]) -> int | None:
    """The last minute up to the deadline at which enough may go, else the most.

    A service may go for as long as it's open for another 15 minutes, and when it has just opened.
    """
    best: tuple[float, int] | None = None
    for minute in range(DEADLINE + 1):
        offered = sum(
            relief[name]
            for name, is_open in open_at.items()
            if is_open[minute] and (minute == 0 or not is_open[minute - 1] or all(is_open[minute : minute + 15]))
        )
        offered = min(offered, EXCESS)
        if offered and (best is None or offered >= best[0]):
            best = offered, minute
    return None if best is None else best[1]


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_a_walk_over_every_minute(seed: int) -> None:
    rng = random.Random(seed)
    now = utc("2027-01-15 05:00")
    common, shared = rng.choice(
        [
            ([], []),
            ([window("30 5 * * *", "3h")], [("allow", [330], 180)]),
            ([window("30 7 * * *", "30m", kind="Deny")], [("deny", [450], 30)]),
        ]
    )
    own = {name: some_rules(rng) for name in ("web", "api", "db")}
    relief = {name: rng.choice([1_000.0, 2_080.0, 3_000.0, EXCESS]) for name in own}
    (found,) = seen(
        [pod for name, (text, _) in own.items() for pod in service(name, text)],
        {f"{name}-0": value for name, value in relief.items()},
        now=now,
        windows={"cluster": common},
    )
    open_at = {
        name: [opened(rules, minute) and opened(shared, minute) for minute in range(DEADLINE + 16)]
        for name, (_, rules) in own.items()
    }
    wanted = walked(open_at, relief)
    if wanted is None:
        assert found.start_by is None or found.start_by > now + 60 * DEADLINE
    else:
        assert found.start_by == now + 60 * wanted
