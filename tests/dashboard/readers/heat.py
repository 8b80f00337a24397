"""Facts of hot nodes in the past and to come, and the rates: where each is shown, and how it is read there."""

import io
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from rebalancer.cli.output.cycle import print_cycle
from rebalancer.model.decisions.next_hour import NEXT_HOUR, heat_of_next_hour
from rebalancer.model.notation.figures import percent
from rebalancer.model.notation.heat import heat_sentence, hours
from tests.dashboard.readers.evictions import report, report_table
from tests.dashboard.readers.now import Surfaces, clock, in_table, scheduled
from tests.dashboard.scenarios import Scene

POOLS = ("batch", "fixed", "general")
"""Those that had a hot node."""


def by_pool(read: Callable[[Scene, str], Any]) -> Callable[[Scene], Any]:
    return lambda it: {pool: read(it, pool) for pool in POOLS}


def rate_of_pool(it: Scene, pool: str, name: str) -> str:
    [line] = [each for each in report(it)["lines"] if each["pool"] == pool]
    return percent(line[name]["share"])


def rate_on_page(it: Scene, pool: str, name: str) -> str:
    [row] = [row for row in it.rows("/reports?by=pool", "Discovery") if row["Pool"] == pool]
    return row[name].split()[0]


def rate_in_table(it: Scene, pool: str, column: int) -> str:
    [row] = [row for row in report_table(it, "Rates") if row[0] == pool]
    return row[column].partition("(")[2].rstrip(")") or row[column]


def rate_as_metric(it: Scene, pool: str, name: str) -> str:
    line = [
        each
        for each in it.metrics.page()[0].decode().splitlines()
        if each.startswith(f'rebalancer_{name}{{pool="{pool}"')
    ]
    return percent(float(line[0].split()[1])) if line else "-"


def a_rate(key: str, title: str, column: int) -> Surfaces:
    """The surfaces of one of the three rates."""
    return {
        "report, JSON": by_pool(lambda it, pool: rate_of_pool(it, pool, key)),
        "report": by_pool(lambda it, pool: rate_in_table(it, pool, column)),
        "reports page": by_pool(lambda it, pool: rate_on_page(it, pool, title)),
        "metrics": by_pool(lambda it, pool: rate_as_metric(it, pool, f"{key}_rate")),
    }


def minutes(text: str) -> dict[str, float]:
    """`by day: 20 Sep: 600; 21 Sep: 894` -> by day."""
    return {day: float(count) for day, count in re.findall(r"(\d\d \w{3}): (\d+)", text)}


def minutes_by_day(it: Scene) -> dict[str, float]:
    found: Counter[str] = Counter()
    for each in report(it)["daily"]:
        if each["pool"] is None:
            found[each["day"][-2:] + " Sep"] += each["hotNodeMinutes"]
    return dict(found)


def hottest(it: Scene) -> dict[str, Any]:
    return {each["node"]: each for each in report(it)["hottest"]}


def peaks(it: Scene) -> dict[str, str]:
    return {row["Node"]: row["Peak"] for row in it.rows("/nodes", "Peak")}


def peak_of_node_page(it: Scene, name: str) -> str:
    [found] = [each.text for each in it.page(f"/nodes/{name}").one("dl").all("div") if "Expected peak" in each.text]
    return found.removeprefix("Expected peak").split()[0]


def times_in(it: Scene, path: str, key: str) -> list[str]:
    """The times of a row, to the minute."""
    [row] = [each for each in it.page(path).all("tr") if each.attributes.get("data-key") == key]
    return [each.attributes["datetime"][:16] for each in row.all("time")]


EXPECTED = ("batch-1", "fixed-1")


def of_expected(read: Callable[[Scene, str], Any]) -> Callable[[Scene], Any]:
    return lambda it: {name: read(it, name) for name in EXPECTED}


EPISODES: Surfaces = {
    "report, JSON": by_pool(lambda it, pool: next(each["hot"] for each in report(it)["lines"] if each["pool"] == pool)),
    "report": by_pool(lambda it, pool: next(float(row[1]) for row in report_table(it, "Rates") if row[0] == pool)),
    "report, nodes": by_pool(
        lambda it, pool: sum(each["episodes"] for each in hottest(it).values() if each["pool"] == pool)
    ),
    "reports page, nodes": by_pool(
        lambda it, pool: sum(
            float(row["Episodes"]) for row in it.rows("/reports", "Ineffective") if row["Pool"] == pool
        )
    ),
    "node pages": by_pool(lambda it, pool: len(it.rows(f"/nodes/{pool}-1", "SLO", "Discovered"))),
}
HOT_MINUTES: Surfaces = {
    "report, JSON, pools": by_pool(
        lambda it, pool: next(each["hotNodeMinutes"] for each in report(it)["pools"] if each["pool"] == pool)
    ),
    "report, JSON, rates": by_pool(
        lambda it, pool: next(each["hotNodeMinutes"] for each in report(it)["lines"] if each["pool"] == pool)
    ),
    "report, JSON, nodes": by_pool(
        lambda it, pool: sum(each["hotMinutes"] for each in hottest(it).values() if each["pool"] == pool)
    ),
    "report, pools": by_pool(
        lambda it, pool: next(float(row[3]) for row in report_table(it, "Hourly means") if row[0] == pool)
    ),
    "report, rates": by_pool(
        lambda it, pool: next(float(row[8]) for row in report_table(it, "Rates") if row[0] == pool)
    ),
    "report, nodes": by_pool(
        lambda it, pool: sum(float(row[3]) for row in report_table(it, "Hottest nodes") if row[1] == pool)
    ),
    "reports page, rates": by_pool(
        lambda it, pool: next(
            float(row["Hot node-minutes"]) for row in it.rows("/reports?by=pool", "Discovery") if row["Pool"] == pool
        )
    ),
    "reports page, pools": by_pool(
        lambda it, pool: next(
            float(row["Node-minutes over the SLO's threshold"])
            for row in it.rows("/reports", "Standard deviation")
            if row["Pool"] == pool
        )
    ),
    "reports page, nodes": by_pool(
        lambda it, pool: sum(
            float(row["Hot minutes"]) for row in it.rows("/reports", "Ineffective") if row["Pool"] == pool
        )
    ),
}
HOT_MINUTES_BY_DAY: Surfaces = {
    "report, JSON, pools": minutes_by_day,
    "report, JSON, rates": lambda it: {
        each["from"][-2:] + " Sep": each["hotNodeMinutes"] for each in report(it)["trend"]
    },
    "report": lambda it: {row[0][-2:] + " Sep": float(row[-1]) for row in report_table(it, "By day")},
    "reports page, trend": lambda it: minutes(
        re.findall(r"Hot node-minutes(\d\d Sep: .*?episodes; \d\d Sep: .*?) minutes", it.page("/reports").text)[
            0
        ].replace(" minutes", "")
    ),
}
PEAK: Surfaces = {
    "nodes page": of_expected(lambda it, name: peaks(it)[name]),
    "node page": of_expected(peak_of_node_page),
    "node page, curve": of_expected(
        lambda it, name: re.findall(r"A peak of (\S+%) is", it.page(f"/nodes/{name}").text)[0]
    ),
    "node page, plan": of_expected(
        lambda it, name: re.findall(r"peak (\S+%) expected", it.page(f"/nodes/{name}").text)[0]
    ),
    "overview, scheduled": of_expected(lambda it, name: re.findall(r"peak (\S+%) expected", scheduled(it)[name])[0]),
}
PEAK_AT: Surfaces = {
    "nodes page": of_expected(lambda it, name: times_in(it, "/nodes", name)[0]),
    "node page, curve": of_expected(
        lambda it, name: clock(re.findall(r"is forecast for (\S+ \S+ UTC)", it.page(f"/nodes/{name}").text)[0])
    ),
    "node page, plan": of_expected(
        lambda it, name: clock(re.findall(r"expected at (\S+ \S+ UTC)", it.page(f"/nodes/{name}").text)[0])
    ),
    "overview, scheduled": of_expected(
        lambda it, name: clock(re.findall(r"expected at (\S+ \S+ UTC)", scheduled(it)[name])[0])
    ),
}


HOT_FROM: Surfaces = {
    "nodes page": of_expected(
        lambda it, name: next(row["Hot from"] for row in it.rows("/nodes", "Hot from") if row["Node"] == name)
    ),
    "node page": of_expected(
        lambda it, name: re.findall(r"over high (already|from \S+)", it.page(f"/nodes/{name}").text)[0]
    ),
    "node page, plan": of_expected(
        lambda it, name: re.findall(
            r"expected at \S+ \S+ UTC, over 75% (already|from \S+)", it.page(f"/nodes/{name}").text
        )[0]
    ),
    "overview, scheduled": of_expected(
        lambda it, name: re.findall(r"over 75% (already|from \S+ \S+)", scheduled(it)[name])[0]
    ),
}
EXPECTED_HOT: Surfaces = {
    "nodes page": lambda it: {row["Node"] for row in it.rows("/nodes", "Hot from") if row["Hot from"] != "-"},
    "nodes page of a follower": lambda it: {
        row["Node"] for row in it.rows("/nodes", "Hot from", follower=True) if row["Hot from"] != "-"
    },
    "overview, scheduled": lambda it: set(scheduled(it)),
    "forecast": lambda it: {
        row[0] for row in in_table(it.run("forecast"), "The next 24 hours") if row[-1] == "will be hot"
    },
    "forecast, JSON": lambda it: {
        each["node"]
        for each in it.document("forecast")["nodes"]
        if each["plannedShare"] is not None and each["plannedShare"] > each["high"]
    },
}
COUNT_OF_EXPECTED: Surfaces = {
    "nodes page": lambda it: len([row for row in it.rows("/nodes", "Hot from") if row["Hot from"] != "-"]),
    "metrics": lambda it: it.metric("forecast_nodes", state="hot"),
}
HOT_NODE_HOURS: Surfaces = {
    "report": lambda it: hot_hours_in(it.run("report", "--since", "24h")),
    "report, JSON": lambda it: hot_hours_of(it.document("report", "--since", "24h")),
    "report, JSON, pools": lambda it: hours(
        sum(each["hotNodeMinutes"] for each in it.document("report", "--since", "24h")["pools"] if each["pool"]) / 60
    ),
    "overview": lambda it: hot_hours_in(it.page("/").text),
    "overview of a follower": lambda it: hot_hours_in(it.page("/", follower=True).text),
}
"""Without the last week there is nothing to compare with."""
HOT_NODE_HOURS_OF_THE_WEEK: Surfaces = {
    "report": lambda it: hot_hours_in(it.run("report", "--since", "7d")),
    "report, JSON": lambda it: hot_hours_of(report(it)),
    "reports page": lambda it: hot_hours_in(it.page("/reports").text),
    "report, pools": lambda it: hours(
        sum(float(row[3]) for row in report_table(it, "Hourly means") if row[0] != "(all)") / 60
    ),
}
NEXT_HOUR_OF_THE_LAST: Surfaces = {
    "last cycle": lambda it: heat_sentence(heat_of_next_hour(it.reports[-1]), of=NEXT_HOUR),
    "plan": lambda it: re.findall(r"Hot node-hours of the next.*?(?=\.$|, at a price)", it.run("plan"), re.M)[0],
}
NEXT_HOUR_OF_THE_FIRST: Surfaces = {
    "run": lambda it: re.findall(r"Hot node-hours of the next.*?(?=\.$|, at a price)", as_printed(it, 0), re.M)[0],
    "notification": lambda it: it.sent[0].text.splitlines()[-1],
}


def hot_hours_in(text: str) -> str:
    return re.findall(r"Hot node-hours ([\d.]+): ", text)[0]


def hot_hours_of(document: Any) -> str:
    return hours(document["hotNodeHours"]["after"])


def as_printed(it: Scene, number: int) -> str:
    """A cycle as `run` prints it."""
    out = io.StringIO()
    print_cycle(Console(width=400, file=out), it.reports[number])
    return out.getvalue()


FACTS: Mapping[str, Surfaces] = {
    "hot node-hours of a day": HOT_NODE_HOURS,
    "hot node-hours of a week": HOT_NODE_HOURS_OF_THE_WEEK,
    "hot node-hours of the hour after the last cycle": NEXT_HOUR_OF_THE_LAST,
    "hot node-hours of the hour after the first cycle": NEXT_HOUR_OF_THE_FIRST,
    "hot episodes": EPISODES,
    "hot minutes": HOT_MINUTES,
    "hot minutes by day": HOT_MINUTES_BY_DAY,
    "discovery rate": a_rate("discovery", "Discovery", 2),
    "eviction rate": a_rate("eviction", "Eviction", 3),
    "effectiveness rate": a_rate("effectiveness", "Effectiveness", 4),
    "peak": PEAK,
    "time of the peak": PEAK_AT,
    "hot from": HOT_FROM,
    "nodes that are expected to be hot": EXPECTED_HOT,
    "number of nodes that are expected to be hot": COUNT_OF_EXPECTED,
}
