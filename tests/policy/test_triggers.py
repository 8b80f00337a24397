"""What starts the strategies of a policy."""

from typing import Any

import pytest

from rebalancer.policy.triggers import periodic
from tests.builders import a_policy


def strategy(name: str, *triggers: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **({"triggers": list(triggers)} if triggers else {}), **fields}


def test_by_default_everything_starts_a_strategy() -> None:
    (only,) = a_policy(strategies=[strategy("LowNodeUtilization")]).strategies
    assert only.triggers == ("Periodic", "Alert", "Forecast")


@pytest.mark.parametrize(
    ("strategies", "names", "interval"),
    [
        ([strategy("LowNodeUtilization", interval="5m"), strategy("RemoveDuplicates", interval="1h")], 2, 300.0),
        (
            [strategy("LowNodeUtilization", "Alert", interval="5m"), strategy("RemoveDuplicates", interval="1h")],
            1,
            3600.0,
        ),
        ([strategy("LowNodeUtilization", "Alert"), strategy("RemoveDuplicates", "Forecast")], 0, float("inf")),
    ],
)
def test_a_cycle_is_due_by_the_strategies_that_are_periodic(
    strategies: list[dict[str, Any]], names: int, interval: float
) -> None:
    policy = a_policy(strategies=strategies)
    assert len(periodic(policy)) == names
    assert policy.cycle_seconds == interval


def test_an_alert_for_a_strategy_that_alerts_do_not_start_is_a_mistake() -> None:
    alerts = {"rules": [{"alert": "NodeHot"}]}
    with pytest.raises(ValueError, match="expected a strategy with Alert among its triggers, got 'LowNodeUtilization'"):
        a_policy(strategies=[strategy("LowNodeUtilization", "Periodic")], alerts=alerts)
    assert a_policy(strategies=[strategy("LowNodeUtilization", "Alert")], alerts=alerts)


@pytest.mark.parametrize("triggers", [[], ["periodic"], ["Manual"], "Alert"])
def test_other_triggers_are_mistakes(triggers: object) -> None:
    with pytest.raises(ValueError, match="triggers"):
        a_policy(strategies=[{"name": "LowNodeUtilization", "triggers": triggers}])


def test_strategies_that_differ_by_triggers_alone_are_the_same() -> None:
    with pytest.raises(ValueError, match="does the same"):
        a_policy(strategies=[strategy("RemoveDuplicates"), strategy("RemoveDuplicates", "Alert")])
