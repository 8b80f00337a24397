"""A week of one cluster in a database, small enough to be counted by hand, with the week before to compare with.

general: n1 found, two evicted, cooled; n1 again, one evicted, came back; n2 found, limits; n3 missed
batch:   left alone
pool general is hot for 30 minutes an hour in the first week and for 12 in the second, batch for 6 in both
"""

from dataclasses import replace
from typing import Any

from rebalancer.effect.rates import day_rows
from rebalancer.model.decisions.eviction import Outcome as EvictionOutcome
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.reason import BlockedReason, MissReason
from rebalancer.model.records.effect import Assessment, HotEpisode, Outcome, PodBefore, PoolHour
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast, Verdict, VerifiedForecast
from rebalancer.store import SqlForecasts, SqlRecords, open_records
from tests.builders import set_fields
from tests.effect.builders import STRATEGY, a_breakdown, an_assessment, an_episode, an_hour
from tests.forecast.builders import a_stored_forecast, an_actual
from tests.store.builders import SteppingClock, build_eviction, build_report

DAY = 20_000
"""A Friday; the week of the report begins with it."""
SINCE, UNTIL = DAY * DAY_SECONDS, (DAY + 7) * DAY_SECONDS
HOUR = 3600.0
ACCOUNT = a_breakdown(8000.0, 6500.0, evicted=2000.0, arrived=300.0, remaining_change=200.0)


def fill(url: str, cluster: str = "test", *, details: bool = True) -> None:
    """Write it; the schema is there. Without `details` only what is kept for long."""
    clock = SteppingClock(UNTIL)
    episodes, made = _episodes(), _assessments(cluster)
    with open_records(url=url, cluster=cluster, clock=clock) as records:
        effect = records.effect()
        rows = day_rows(
            cluster=cluster,
            days=range(DAY, DAY + 7),
            until=UNTIL,
            episodes=episodes,
            assessments=made,
            judged=[_ahead(Verdict.PREVENTED), _ahead(Verdict.FALSE_ALARM)],
        )
        effect.roll_up(rows)
        effect.put_hours(_hours(), read_until=UNTIL)
        if details:
            effect.put_episodes(episodes)
            effect.expect(made)
            effect.made(made)
        _fill_forecasts(records.forecasts())
        _evict(records, clock, cluster)


def _episodes() -> list[HotEpisode]:
    found: dict[str, Any] = {"discovery_trigger": "alert", "strategy": STRATEGY}
    first, back, stuck, missed = (SINCE + hour * HOUR for hour in (8, 32, 33, 50))
    limits = {"blocked_reason": BlockedReason.LIMITS, "detail": "nothing evicted: limits were used up"}
    below = {"miss_reason": MissReason.BELOW_THRESHOLD, "detail": "at most 71%"}
    late = {"discovered_at": SINCE + 8.1 * HOUR, "evictions": 2, "cooled": True}
    at_once = {"discovered_at": back, "evictions": 1, "cooled": False}
    periodic = found | {"discovered_at": stuck, "discovery_trigger": "periodic"}
    return [
        an_episode(start=first, **late, **found, node="n1", minutes=60),
        an_episode(start=back, **at_once, **found, node="n1", minutes=90),
        an_episode(start=stuck, **limits, **periodic, node="n2", minutes=30),
        an_episode(start=missed, **below, node="n3", minutes=45),
    ]


def _assessments(cluster: str) -> list[Assessment]:
    pods = tuple(
        PodBefore(uid=f"u{number}", pod=f"shop/web-{number}", amount=1000.0, evicted=number < 2) for number in range(3)
    )
    common: dict[str, Any] = {"node": "n1", "trigger": "alert", "breakdown": ACCOUNT, "assessed_at": UNTIL}
    first, second = SINCE + 8.2 * HOUR, SINCE + 32.2 * HOUR
    cooled = {"cycle": f"{cluster}-c1", "outcome": Outcome.COOLED, "after_share": 0.65}
    back = {"cycle": f"{cluster}-c2", "outcome": Outcome.REPLACEMENTS_RETURNED, "after_share": 0.8}
    ends, back_ends = ({"last_eviction_at": at, "due_at": at + 900} for at in (first, second))
    return [
        replace(an_assessment(*pods), **common, **cooled, **ends),
        replace(an_assessment(*pods[1:]), **common, **back, **back_ends, detail="78% to 80%"),
    ]


def _hours() -> list[PoolHour]:
    return [
        an_hour(hour, pool=pool, hot_node_minutes=minutes, new_pods=2, new_pods_over_target=1)
        for hour in range((DAY - 7) * 24, (DAY + 7) * 24)
        for pool, minutes in (("general", 30.0 if hour < DAY * 24 else 12.0), ("batch", 6.0))
    ]


def _evict(records: SqlRecords, clock: SteppingClock, cluster: str) -> None:
    """The evictions of the two cycles, as rows."""
    for cycle, hours, pods in (("c1", 8.2, ("web-0", "web-1")), ("c2", 32.2, ("web-1",))):
        clock.at = SINCE + hours * HOUR
        report = replace(
            build_report(cycle=f"{cluster}-{cycle}", started_at=clock.at), cluster=cluster, trigger=Trigger.ALERT
        )
        records.begin(report)
        for pod in pods:
            eviction = build_eviction(pod=pod, node="n1")
            set_fields(eviction, record=records.planned(report, eviction))
            set_fields(eviction, outcome=EvictionOutcome.EVICTED)
            records.outcome(eviction)


def _fill_forecasts(forecasts: SqlForecasts) -> None:
    """Of twelve nodes each day: too high by 100 of 4000 until three days before the end, then too low by 300."""
    forecasts.keep([a_forecast(f"n{number}", day) for day in range(DAY - 20, DAY + 6) for number in range(12)])
    due = forecasts.due(UNTIL)
    forecasts.judge(
        [(number, a_truth(each, 2300.0 if each.made_at > UNTIL - 4 * DAY_SECONDS else 1900.0)) for number, each in due]
    )


def a_forecast(node: str, day: int, **fields: Any) -> StoredForecast:
    """Made at noon."""
    return made_at(node, (day + 0.5) * DAY_SECONDS, **fields)


def made_at(node: str, time: float, **fields: Any) -> StoredForecast:
    """A forecast of the day from then on: 2000 and a margin of 400, of a node of 4000."""
    return a_stored_forecast(time, **{"node": node, "high": 0.55, **fields})


def a_truth(forecast: StoredForecast, p95: float, verdict: Verdict | None = None) -> Actuals:
    """What came of it: its peak was an hour and a half late."""
    return an_actual(p95, forecast.peak_at + 5400.0, verdict=verdict)


def _ahead(verdict: Verdict) -> VerifiedForecast:
    forecast = a_forecast("n9", DAY, kind=ForecastKind.AHEAD, hot_from=SINCE + 13 * HOUR)
    return VerifiedForecast(forecast=forecast, actuals=a_truth(forecast, 1900.0, verdict))
