"""What a command's context is given, beside the daemon's."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands import contexts
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.strategies import registry
from rebalancer.strategies.external.plugins import NoArgs, Plugin
from tests.builders import a_policy

PLUGIN = "example.com/ByDays"


@pytest.mark.parametrize(
    ("strategy", "mode", "declares", "has_days"),
    [
        (PLUGIN, "Observe", [Need.DAYS], True),
        (PLUGIN, "Off", [Need.DAYS], False),
        (PLUGIN, "Observe", [Need.CONTENTION], False),
        ("ServiceSpread", "Observe", [], True),
        ("LowNodeUtilization", "Observe", [], False),
    ],
)
def test_plan_knows_services_days_where_a_strategy_declares_them_as_the_daemon_does(
    strategy: str,
    mode: str,
    declares: Iterable[Need],
    has_days: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    its = Plugin(find=lambda _view: None, args=NoArgs, needs=frozenset(declares), cordons=False)
    monkeypatch.setattr(registry, "plugin", lambda _name: its)
    policy = a_policy(strategies=[{"name": strategy}], forecast={"mode": mode})
    (tmp_path / policy.cluster).mkdir()
    nothing: Any = None
    bare = CycleContext(
        cluster=nothing,
        usage=nothing,
        evictor=nothing,
        records=nothing,
        ledger=None,
        lease=None,
        clock=SystemClock(),
        progress=NullProgress(),
        soft_taint_controller=nothing,
    )
    with ExitStack() as stack:
        made = contexts._with_kept_history(bare, policy, Settings(history_dir=str(tmp_path)), stack, None)
        assert (made.forecasts.service_day_profiles is not bare.forecasts.service_day_profiles) is has_days
