"""Facts of this moment and of the last cycle: where each is shown, and how it is read there."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rebalancer.model.notation.figures import percent
from tests.dashboard.scenarios import Scene

Surfaces = Mapping[str, Callable[[Scene], Any]]
HOT = ("fixed-1", "batch-1")


def number(pattern: str, text: str) -> float:
    """The number in the first group; 0 for `no`, `No`."""
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in {text!r}"
    return 0.0 if found[1] in ("no", "No") else float(found[1])


def counts(text: str) -> dict[str, float]:
    """`2 evicted 3 planned` -> each by its name."""
    return {name: float(count) for count, name in re.findall(r"(\d+) (evicted|planned|refused|failed|unknown)", text)}


def seconds(utc: str) -> float:
    """`2026-09-21T15:00:20Z`, to the second."""
    return float(int(datetime.fromisoformat(utc).timestamp()))


def clock(text: str) -> str:
    """`2026-09-21 18:55 UTC` of a message, as a page's attribute has it, to the minute."""
    return text.replace(" UTC", "").replace(" ", "T")


def verdict(it: Scene, *, follower: bool = False) -> str:
    return it.page("/", follower=follower).one("p", role="status").text


def last(it: Scene, *, follower: bool = False) -> str:
    """The overview's last cycle."""
    return it.page("/", follower=follower).one("section", aria_labelledby="last").text


def cycle(it: Scene) -> str:
    """The address of the last cycle's page."""
    return f"/cycles/{it.reports[-1].id}"


def fact_of_cycle(it: Scene, name: str) -> str:
    """One of the figures at the top of the last cycle's page."""
    return next(each.text for each in it.page(cycle(it)).one("dl").all("div") if each.text.startswith(name))


def row_of_cycle(it: Scene) -> dict[str, str]:
    """The last cycle in the list."""
    return next(row for row in it.rows("/cycles", "Trigger") if row["key"] == it.reports[-1].id)


def nodes(it: Scene, *, follower: bool = False) -> dict[str, dict[str, str]]:
    return {row["Node"]: row for row in it.rows("/nodes", "State", follower=follower)}


def of_node(it: Scene, name: str, title: str) -> str:
    """One of the figures at the top of a node's page."""
    facts = [each.text for each in it.page(f"/nodes/{name}").one("dl").all("div")]
    return next(each.removeprefix(title).split()[0].rstrip(",") for each in facts if each.startswith(title))


def planned(it: Scene) -> dict[str, Any]:
    return {each["name"]: each for each in it.document("plan")["nodes"]}


def explained(it: Scene, name: str) -> dict[str, Any]:
    """The thresholds of CPU by `explain node`."""
    [found] = it.document("explain", "node", name)["evaluations"][0]["thresholds"]
    thresholds: dict[str, Any] = found
    return thresholds


def by_hot_node(read: Callable[[Scene, str], Any]) -> Callable[[Scene], Any]:
    """The same of each node that is hot."""
    return lambda it: {name: read(it, name) for name in HOT}


def tiles(it: Scene, *, follower: bool = False) -> dict[str, str]:
    """Node -> the text of its tile."""
    found = it.page("/", follower=follower).one("section", aria_labelledby="map").all("a", class_="tile")
    return {each.one("span", class_="who").text: each.text for each in found}


def marked(it: Scene, which: str, *, follower: bool = False) -> set[str]:
    found = it.page("/", follower=follower).all("a", class_=which)
    return {each.one("span", class_="who").text for each in found}


def in_table(text: str, title: str) -> list[list[str]]:
    """The cells of a terminal's table; columns are two spaces apart."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(title)) + 2
    out = []
    for line in lines[first:]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) < 2:
            break
        out.append(cells)
    return out


def scheduled(it: Scene, *, follower: bool = False) -> dict[str, str]:
    """Node -> what the overview expects of it."""
    found = [each.text for each in it.page("/", follower=follower).one("section", aria_labelledby="due").all("li")]
    return {each[1]: text for text in found if (each := re.search(r"(\S+): (?:\S+ )?peak", text))}


def in_flight(it: Scene) -> float:
    [line] = [each for each in it.document("limits")["limits"] if each["limit"] == "100 in flight"]
    return float(line["used"])


def used_limits(it: Scene) -> dict[tuple[str, str], tuple[float, float]]:
    found = it.document("limits")["limits"]
    return {
        (f"{each['scope']} {each['key']}", each["limit"]): (each["used"], each["left"])
        for each in found
        if each["used"]
    }


def why_not(it: Scene, *, follower: bool = False) -> dict[str, float]:
    """Code -> pods, of the overview."""
    items = it.page("/", follower=follower).one("section", aria_labelledby="why").all("li")
    return {each.attributes["data-key"]: number(r"^(\d+) pods?", each.text) for each in items}


def refused(it: Scene, *, on_hot: bool = False) -> dict[str, float]:
    """Code -> pods, of a plan."""
    found = it.document("plan")["refusals"]
    hot = {name for name, each in planned(it).items() if each["hot"]}
    return dict(Counter(each["code"] for each in found if not on_hot or each["node"] in hot))


HOT_NODES: Surfaces = {
    "last cycle": lambda it: {each.name for each in it.reports[-1].nodes if each.hot},
    "overview, tiles": lambda it: marked(it, "is-hot"),
    "overview of a follower, tiles": lambda it: marked(it, "is-hot", follower=True),
    "nodes page": lambda it: {name for name, row in nodes(it).items() if row["State"] == "hot"},
    "nodes page of a follower": lambda it: {
        name for name, row in nodes(it, follower=True).items() if row["State"] == "hot"
    },
    "nodes page, hot alone": lambda it: {row["Node"] for row in it.rows("/nodes?state=hot", "State")},
    "node pages": lambda it: {name for name in planned(it) if "Hot: CPU" in it.page(f"/nodes/{name}").text},
    "plan, JSON": lambda it: {name for name, each in planned(it).items() if each["hot"]},
    "explain node, JSON": lambda it: {
        name for name in planned(it) if it.document("explain", "node", name)["node"]["hot"]
    },
    "cycle page": lambda it: {
        row["Node"].removesuffix(" hot") for row in it.rows(cycle(it), "CPU before") if row["Node"].endswith(" hot")
    },
}
COUNT_OF_HOT: Surfaces = {
    "last cycle": lambda it: sum(each.hot for each in it.reports[-1].nodes),
    "overview, verdict": lambda it: number(r"(\d+) of \d+ nodes hot", verdict(it)),
    "overview of a follower, verdict": lambda it: number(r"(\d+) of \d+ nodes hot", verdict(it, follower=True)),
    "overview, figures": lambda it: number(r"(\d+) hot", it.page("/").one("ul", class_="facts").text),
    "overview, last cycle": lambda it: number(r": (\d+) hot", last(it)),
    "cycles page": lambda it: float(row_of_cycle(it)["Hot"]),
    "cycle page": lambda it: number(r"nodes, (\d+) hot", fact_of_cycle(it, "Evaluated")),
    "plan": lambda it: number(r"of (\d+) hot node", it.run("plan")),
    "db status": lambda it: number(r"nodes, (\d+) hot", it.run("db", "status")),
    "db status, JSON": lambda it: it.document("db", "status")["lastCycle"]["hot_nodes"],
    "metrics": lambda it: it.metric("hot_nodes", resource="cpu"),
}
COUNT_OF_NODES: Surfaces = {
    "last cycle": lambda it: len(it.reports[-1].nodes),
    "overview, verdict": lambda it: number(r"\d+ of (\d+) nodes hot", verdict(it)),
    "overview, last cycle": lambda it: number(r"Evaluated \d+ of (\d+)", last(it)),
    "overview, evaluated": lambda it: number(r"Evaluated (\d+) of", last(it)),
    "overview, tiles": lambda it: len(tiles(it)),
    "nodes page": lambda it: len(nodes(it)),
    "cycles page": lambda it: float(row_of_cycle(it)["Nodes"]),
    "cycle page": lambda it: number(r"Evaluated(\d+) nodes", fact_of_cycle(it, "Evaluated")),
    "plan, JSON": lambda it: len(planned(it)),
    "db status": lambda it: number(r"(\d+) nodes,", it.run("db", "status")),
    "forecast, JSON": lambda it: len(it.document("forecast")["nodes"]),
}
SHARE: Surfaces = {
    "nodes page": by_hot_node(lambda it, name: nodes(it)[name]["CPU now"]),
    "nodes page of a follower": by_hot_node(lambda it, name: nodes(it, follower=True)[name]["CPU now"]),
    "node page": by_hot_node(lambda it, name: of_node(it, name, "CPU now")),
    "plan": by_hot_node(
        lambda it, name: next(row[2] for row in in_table(it.run("plan"), "Node CPU") if row[0] == name)
    ),
    "plan, JSON": by_hot_node(lambda it, name: percent(planned(it)[name]["cpuShareBefore"])),
    "explain node, JSON": by_hot_node(lambda it, name: percent(explained(it, name)["measuredShare"])),
    "cycle page": by_hot_node(
        lambda it, name: next(row["CPU before"] for row in it.rows(cycle(it), "CPU before") if name in row["Node"])
    ),
    "cycle page, findings": by_hot_node(
        lambda it, name: next(row["Share"] for row in it.rows(cycle(it), "Strategy") if name == row["Node"])
    ),
}
HIGH_AND_TARGET: Surfaces = {
    "nodes page, node page": by_hot_node(lambda it, name: (nodes(it)[name]["High"], "65%")),
    "node page": by_hot_node(
        lambda it, name: tuple(re.findall(r"High, target(\S+), (\S+)", it.page(f"/nodes/{name}").text)[0])
    ),
    "explain node, JSON": by_hot_node(
        lambda it, name: (percent(explained(it, name)["high"]), percent(explained(it, name)["target"]))
    ),
    "cycle page": by_hot_node(
        lambda it, name: next(
            (row["High"], row["Target"]) for row in it.rows(cycle(it), "Strategy") if name == row["Node"]
        )
    ),
    "plan, JSON": by_hot_node(
        lambda it, name: next(
            (percent(each["high"]), percent(each["target"]))
            for each in it.document("plan")["findings"]
            if each["node"] == name
        )
    ),
    "forecast, JSON": by_hot_node(
        lambda it, name: next(
            (percent(each["high"]), "65%") for each in it.document("forecast")["nodes"] if each["node"] == name
        )
    ),
}
FINDINGS: Surfaces = {
    "last cycle": lambda it: len(it.reports[-1].findings),
    "overview": lambda it: number(r"(\d+) findings", last(it)),
    "overview of a follower": lambda it: number(r"(\d+) findings", last(it, follower=True)),
    "cycles page": lambda it: float(row_of_cycle(it)["Findings"]),
    "cycle page": lambda it: number(r"Findings(\d+)", fact_of_cycle(it, "Findings")),
    "cycle page, table": lambda it: len(it.rows(cycle(it), "Strategy")),
    "plan": lambda it: len(in_table(it.run("plan"), "Hot nodes")),
    "plan, JSON": lambda it: len(it.document("plan")["findings"]),
    "db status, JSON": lambda it: it.document("db", "status")["lastCycle"]["findings"],
}
REFUSALS: Surfaces = {
    "last cycle": lambda it: len(it.reports[-1].refusals),
    "overview": lambda it: number(r"(\d+) refusals", last(it)),
    "cycles page": lambda it: float(row_of_cycle(it)["Refusals"]),
    "cycle page": lambda it: number(r"Refusals(\d+)", fact_of_cycle(it, "Refusals")),
    "cycle page, table": lambda it: sum(float(row["Pods"]) for row in it.rows(cycle(it), "Code", "Examples")),
    "plan": lambda it: sum(float(row[2]) for row in in_table(it.run("plan"), "Not evicted")),
    "plan, JSON": lambda it: len(it.document("plan")["refusals"]),
    "db status, JSON": lambda it: it.document("db", "status")["lastCycle"]["refusals"],
}
REFUSED_BY_CODE: Surfaces = {
    "last cycle": lambda it: Counter(str(each.code) for each in it.reports[-1].refusals),
    "cycle page": lambda it: sum(
        (Counter({row["Code"]: int(row["Pods"])}) for row in it.rows(cycle(it), "Code", "Examples")), Counter()
    ),
    "plan": lambda it: sum(
        (Counter({row[1]: int(row[2])}) for row in in_table(it.run("plan"), "Not evicted")), Counter()
    ),
    "plan, JSON": refused,
}
STAY_ON_HOT: Surfaces = {
    "overview": why_not,
    "overview of a follower": lambda it: why_not(it, follower=True),
    "plan, JSON": lambda it: {code: n for code, n in refused(it, on_hot=True).items() if code != "GoalReached"},
    "explain node, JSON": lambda it: dict(
        Counter(
            each["code"]
            for name in HOT
            for each in it.document("explain", "node", name)["pods"]
            if each["code"] not in (None, "GoalReached")
        )
    ),
    "nodes' pages": lambda it: dict(
        sum(
            (
                Counter({row["Code"]: int(row["Pods"])})
                for name in HOT
                for row in it.rows(f"/nodes/{name}", "Code", "Cycles")
                if row["Code"] != "GoalReached"
            ),
            Counter(),
        )
    ),
}
COUNT_OF_STAYING: Surfaces = {
    "overview, verdict": lambda it: number(r"(\d+) pods stay", verdict(it)),
    "overview of a follower, verdict": lambda it: number(r"(\d+) pods stay", verdict(it, follower=True)),
    "overview, reasons": lambda it: sum(why_not(it).values()),
}
DRY_RUN_MOVES: Surfaces = {
    "last cycle": lambda it: sum(str(each.answered.outcome) == "planned" for each in it.reports[-1].evictions),
    "overview": lambda it: counts(last(it))["planned"],
    "cycles page": lambda it: counts(row_of_cycle(it)["Evictions"])["planned"],
    "cycle page": lambda it: counts(fact_of_cycle(it, "Evictions"))["planned"],
    "cycle page, table": lambda it: len(it.rows(cycle(it), "Outcome")),
    "plan": lambda it: len(in_table(it.run("plan"), "Planned evictions")),
    "plan, JSON": lambda it: len(it.document("plan")["evictions"]),
    "db status": lambda it: counts(it.run("db", "status"))["planned"],
    "db status, JSON": lambda it: it.document("db", "status")["lastCycle"]["outcomes"]["planned"],
    "metrics, per cycle": lambda it: (
        it.metric("evictions_total", outcome="planned")
        / sum(any(str(e.answered.outcome) == "planned" for e in each.evictions) for each in it.reports)
    ),
}
RELIEF_OF_LAST: Surfaces = {
    "last cycle": lambda it: it.reports[-1].score,
    "cycle page": lambda it: None if fact_of_cycle(it, "Relief") == "Relief-" else fact_of_cycle(it, "Relief"),
    "cycles page": lambda it: None if row_of_cycle(it)["Price"] == "-" else row_of_cycle(it)["Price"],
    "plan, JSON": lambda it: it.document("plan")["score"],
    "plan": lambda it: it.run("plan") if "hot node-minutes" in it.run("plan") else None,
    "db status, JSON": lambda it: it.document("db", "status")["lastCycle"]["price"],
}
COOLED_BY_LAST: Surfaces = {
    "last cycle": lambda it: 0,
    "plan": lambda it: number(r"(\d+|No) evictions? cools? \d+ of", it.run("plan")),
    "plan, nodes": lambda it: number(r"evictions? cools? (\d+) of", it.run("plan")),
}
PARTS_IN_DRY_RUN: Surfaces = {
    "banner": lambda it: re.findall(r"Dry run in (.+?): their", it.page("/").text),
    "banner of a follower": lambda it: re.findall(r"Dry run in (.+?): their", it.page("/", follower=True).text),
    "plan, JSON": lambda it: sorted(
        {each["detail"].removeprefix("dry run of ") for each in it.document("plan")["evictions"]}
    ),
    "cycle page": lambda it: sorted(set(re.findall(r"dry run of (pool \w+)", it.page(cycle(it)).text))),
}
LAST_CYCLE_AT: Surfaces = {
    "last cycle": lambda it: float(int(it.reports[-1].started_at)),
    "overview": lambda it: seconds(
        it.page("/").one("section", aria_labelledby="last").all("time")[0].attributes["datetime"]
    ),
    "cycles page": lambda it: seconds(row_of_cycle(it)["when"]),
    "cycle page": lambda it: seconds(it.page(cycle(it)).one("h1").one("time").attributes["datetime"]),
    "db status, JSON": lambda it: float(int(it.document("db", "status")["lastCycle"]["started_at"])),
    "db status, in India": lambda it: (
        float(int(it.reports[-1].started_at))
        if f"({datetime.fromtimestamp(it.reports[-1].started_at, UTC).astimezone():%H:%M} IST)"
        in it.run("db", "status")
        else it.run("db", "status")
    ),
}
LAST_CYCLE_AGE: Surfaces = {
    "overview": lambda it: re.findall(r"(\w+) ago", last(it)),
    "overview of a follower": lambda it: re.findall(r"(\w+) ago", last(it, follower=True)),
    "db status": lambda it: re.findall(r"(\w+) ago", it.run("db", "status")),
}
IN_FLIGHT: Surfaces = {
    "status, JSON": lambda it: len(it.document("status")["inFlight"]),
    "limits, JSON": in_flight,
    "limits page": lambda it: len(it.rows("/limits", "Deadline")),
    "overview, verdict": lambda it: 0 if "all replaced" in verdict(it) else verdict(it),
    "evictions page": lambda it: sum(
        row["Outcome"] == "evicted" and not row["Ready"].startswith("after") for row in it.rows("/evictions", "Outcome")
    ),
    "metrics": lambda it: 100 - it.metric("limit_left_evictions", scope="cluster"),
}
LIMITS_USED: Surfaces = {
    "limits, JSON": used_limits,
    "limits page": lambda it: {
        (row["Scope"], row["Limit"]): (float(row["Used"]), float(row["Left"])) for row in it.rows("/limits", "Used")
    },
    "limits": lambda it: {
        (row[0], row[1]): (float(row[2]), float(row[3])) for row in in_table(it.run("limits"), "Limits")
    },
}
FACTS: Mapping[str, Surfaces] = {
    "nodes that are hot": HOT_NODES,
    "number of hot nodes": COUNT_OF_HOT,
    "number of nodes": COUNT_OF_NODES,
    "CPU of hot nodes": SHARE,
    "high and target of hot nodes": HIGH_AND_TARGET,
    "findings of the last cycle": FINDINGS,
    "refusals of the last cycle": REFUSALS,
    "refusals of the last cycle by code": REFUSED_BY_CODE,
    "pods that stay on hot nodes, by code": STAY_ON_HOT,
    "number of pods that stay on hot nodes": COUNT_OF_STAYING,
    "moves of the parts in dry run": DRY_RUN_MOVES,
    "relief by the last cycle": RELIEF_OF_LAST,
    "nodes cooled by the last cycle": COOLED_BY_LAST,
    "parts in dry run": PARTS_IN_DRY_RUN,
    "start of the last cycle": LAST_CYCLE_AT,
    "age of the last cycle": LAST_CYCLE_AGE,
    "evictions in flight": IN_FLIGHT,
    "limits used": LIMITS_USED,
}
