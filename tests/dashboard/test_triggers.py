"""What the overview says of the next cycles."""

from pathlib import Path

import pytest

from tests.dashboard.test_views import ANY, a_day


@pytest.mark.parametrize(
    ("strategies", "said"),
    [
        (
            [{"name": "LowNodeUtilization", "triggers": ["Alert"]}, {"name": "RemoveDuplicates", "interval": "1h"}],
            ["RemoveDuplicates evaluates all every 1h"],
        ),
        (
            [{"name": "LowNodeUtilization", "triggers": ["Alert", "Forecast"]}],
            ["no strategy is periodic: cycles start by alert, forecast or command"],
        ),
    ],
)
def test_only_periodic_strategies_are_due(strategies: list[dict[str, object]], said: list[str], tmp_path: Path) -> None:
    with a_day(tmp_path, strategies=strategies) as it:
        assert [each.what for each in it.views.overview(ANY).due] == said
