"""The newest replay in the history folder."""

from pathlib import Path
from typing import Any

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.paths import newest_replay
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.dashboard.sources import Sources
from rebalancer.dashboard.views import LiveViews
from tests.builders import a_policy


class Leads:
    waiting_for = ""
    term = 1

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return True


def test_the_dashboard_shows_the_replay_of_its_cluster_and_history_folder(tmp_path: Path) -> None:
    policy, unused, clock = a_policy(), Any, SystemClock()
    current = Active(policy=policy, context=unused, forecast_loop=None)  # type: ignore[arg-type]
    views = LiveViews(
        Sources(
            current=lambda: current,
            leadership=Leads(),
            ledger=unused,  # type: ignore[arg-type]
            inbox=unused,  # type: ignore[arg-type]
            archive=unused,  # type: ignore[arg-type]
            effect=unused,  # type: ignore[arg-type]
            forecasts=unused,  # type: ignore[arg-type]
            clock=clock,
            history_dir=str(tmp_path),
        )
    )
    assert (views.head().has_replay, views.replay()) == (False, None)
    page = newest_replay(str(tmp_path), policy.cluster)
    page.parent.mkdir()
    page.write_text("<!doctype html>")
    assert (views.head().has_replay, views.replay()) == (True, b"<!doctype html>")
    assert page.parent == tmp_path / policy.cluster
