"""What pages show of the hours ahead."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rebalancer.dashboard.views import LiveViews
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.model.notation.figures import percent
from rebalancer.web.pages.views import NodeState
from tests.dashboard.test_views import ANY, Leads, Shown, shown
from tests.stories.test_ahead_of_the_peak import MIDNIGHT, a_night


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A node that is cool now and will be hot at ten; one look ahead was made."""
    folder = tmp_path_factory.mktemp("night")
    database = f"sqlite:///{folder / 'rebalancer.db'}"
    with (
        a_night(folder, leadTime="15m") as stage,
        shown(stage.lab, stage.policy, stage.world, database, stage.lookout) as made,
    ):
        stage.lookout.records = made.records.forecasts()
        stage.lookout.look(stage.world.cluster.snapshot())
        yield made


def test_a_node_that_will_be_hot_is_shown_with_its_peak_and_what_is_due(night: Shown) -> None:
    page = night.views.overview(ANY)
    first = page.map.nodes[0]
    assert (first.name, first.state) == ("node-1", NodeState.EXPECTED)
    assert first.peak_share is not None
    assert first.peak_share > 0.8
    assert first.peak_at is not None
    assert abs(first.peak_at - (MIDNIGHT + 10 * 3600)) < 3600
    assert page.map.forecast_at == MIDNIGHT
    assert [each.node for each in page.due][:1] == ["node-1"]
    assert "to be relieved by" in page.due[0].what


def test_what_is_scheduled_has_the_figures_of_the_tiles(night: Shown) -> None:
    """The forecast run expected more of node-1, and node-2 to be hot as well; pods have left them since."""
    assert night.lookout is not None
    assert night.lookout.last is not None
    last = night.lookout.last
    [first] = last.coming
    higher, gone = replace(first, peak_share=0.99), replace(first, node_name="node-2")
    night.lookout.last = replace(last, coming=(higher, gone))
    page, one = LiveViews(night.sources).overview(ANY), LiveViews(night.sources).node("node-1")
    night.lookout.last = last
    tile = page.map.nodes[0]
    assert tile.peak_share is not None
    assert [each.node for each in page.due if each.node] == ["node-1"]
    assert page.due[0].what.startswith(f"peak {percent(tile.peak_share)} expected at ")
    assert one is not None
    assert one.plan == page.due[0].what


def test_leak_is_on_the_first_page_with_its_time(night: Shown) -> None:
    assert night.lookout is not None
    assert night.lookout.last is not None
    last = night.lookout.last
    snapshot = night.world.cluster.snapshot()
    on = snapshot.pods_on(snapshot.node_index["node-2"]).tolist()
    there = [str(snapshot.pod(each)) for each in on]
    leak = MemoryLeak(
        pod=there[0],
        service="shop/web",
        node="node-2",
        mebibytes=900.0,
        mebibytes_per_hour=60.0,
        since=MIDNIGHT - 6 * 3600,
        limit_mebibytes=1024.0,
        kill_at=MIDNIGHT + 2 * 3600,
        kill_from=MIDNIGHT + 1.5 * 3600,
        kill_until=float("inf"),
    )
    gone = replace(leak, pod="shop/gone-1")
    night.lookout.last = replace(last, leaks=(gone, *(leak,) * 10))
    page = LiveViews(night.sources).overview(ANY)
    following = LiveViews(replace(night.sources, leadership=Leads(leads=False))).overview(ANY)
    night.lookout.last = replace(night.lookout.last, at=last.at - 24 * 3600)
    stale = LiveViews(night.sources).overview(ANY)
    night.lookout.last = last
    assert (following.leaks, stale.leaks) == ((), ())
    assert [(each.at, each.node) for each in page.leaks[:1]] == [(leak.kill_at, "node-2")]
    assert page.leaks[0].what.startswith(
        f"{there[0]} grows by 60 MiB an hour and has 900 MiB; its limit of 1024 MiB is"
    )
    assert page.leaks[0].what.endswith("or never)")
    assert (len(page.leaks), page.more_leaks) == (8, 2)
    assert night.views.overview(ANY).leaks == ()


def test_the_page_of_a_node_has_its_days_and_what_is_expected(night: Shown) -> None:
    page = night.views.node("node-1")
    assert page is not None
    assert "to be relieved by" in page.plan
    assert page.curve.source == "5-minute means from the usage history"
    assert len(page.curve.past) > 280
    assert max(share or 0 for _, share in page.curve.past) > 0.8
    assert len(page.curve.ahead) == 288
    at, share = max(page.curve.ahead, key=lambda each: each[1] or 0)
    assert (at, share) == (page.line.peak_at, pytest.approx(page.line.peak_share))


def test_a_follower_shows_the_peaks_that_the_leader_wrote_down(night: Shown) -> None:
    follower = LiveViews(replace(night.sources, leadership=Leads(leads=False)))
    lines = {line.name: line for line in follower.map(ANY).nodes}
    ours = {line.name: line for line in night.views.map(ANY).nodes}
    assert lines["node-1"].state is NodeState.EXPECTED
    assert lines["node-1"].peak_share == pytest.approx(ours["node-1"].peak_share, abs=0.1)
    page = follower.node("node-1")
    assert page is not None
    assert page.curve.ahead == ()
