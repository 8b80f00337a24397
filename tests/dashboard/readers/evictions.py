"""Facts of evictions, cycles and refusals of the hour: where each is shown, and how it is read there."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rebalancer.model.reason import Reason
from tests.dashboard.readers.now import Surfaces, counts, in_table, number, planned, seconds, verdict
from tests.dashboard.scenarios import Scene


def report(it: Scene) -> Any:
    return it.document("report", "--since", "7d")


def report_table(it: Scene, title: str) -> list[list[str]]:
    return in_table(it.run("report", "--since", "7d"), title)


RELIEVED = ("general-1", "general-2")


def moves(it: Scene, path: str = "/evictions") -> list[dict[str, str]]:
    """Rows of evictions that happened."""
    return [row for row in it.rows(path, "Outcome") if row["Outcome"].startswith("evicted")]


def cycle_pages(it: Scene) -> Iterable[str]:
    return (f"/cycles/{each.id}" for each in it.reports)


def made(it: Scene) -> list[Any]:
    return [move for each in it.reports for move in each.evictions if str(move.answered.outcome) == "evicted"]


def seconds_of(row: dict[str, str]) -> int:
    return int(seconds(row["when"]))


def from_node(row: dict[str, str]) -> str:
    return row["From"]


def service_of(row: dict[str, str]) -> str:
    return row["Pod"].split(" of ")[-1].split("of ")[-1].strip()


def reliefs(it: Scene) -> dict[str, dict[str, str]]:
    return {row["Node"]: row for row in it.rows("/evictions", "Before", "After")}


def assessments(it: Scene, name: str) -> str:
    """The settled assessment on a node's page."""
    [found] = [each.text for each in it.page(f"/nodes/{name}").all("article") if "After settling" in each.text]
    return found


EVICTIONS: Surfaces = {
    "cycles": lambda it: len(made(it)),
    "the lab": lambda it: len(it.lab.log.evictions(code=201)),
    "overview, verdict": lambda it: number(r"(\d+) evictions? in 24 h", verdict(it)),
    "overview of a follower": lambda it: number(r"(\d+) evictions? in 24 h", verdict(it, follower=True)),
    "evictions page": lambda it: len(moves(it)),
    "evictions page, picture": lambda it: number(
        r"(\d+) evictions? from", it.page("/evictions").one("svg", class_="timeline").text
    ),
    "evictions page, nodes": lambda it: sum(float(row["Evictions"]) for row in reliefs(it).values()),
    "services page": lambda it: sum(float(row["Evictions"]) for row in it.rows("/services", "Returned")),
    "service pages": lambda it: sum(
        len(moves(it, f"/services/{row['Service']}")) for row in it.rows("/services", "Returned")
    ),
    "cycles page": lambda it: sum(counts(row["Evictions"]).get("evicted", 0) for row in it.rows("/cycles", "Trigger")),
    "cycle pages": lambda it: sum(len(moves(it, path)) for path in cycle_pages(it)),
    "node pages": lambda it: sum(len(moves(it, f"/nodes/{name}")) for name in planned(it)),
    "node pages, curves": lambda it: sum(
        number(r"(\d+|No) evictions? ", it.page(f"/nodes/{name}").one("svg", class_="curve").text)
        for name in planned(it)
    ),
    "report": lambda it: number(r", (\d+) evictions", it.run("report", "--since", "7d")),
    "report, rates": lambda it: sum(float(row[5]) for row in report_table(it, "Rates") if row[0] != "(all)"),
    "report, services": lambda it: sum(float(row[1]) for row in report_table(it, "Services with")),
    "report, JSON": lambda it: report(it)["evictions"],
    "report, JSON, services": lambda it: sum(each["evictions"] for each in report(it)["services"]),
    "reports page": lambda it: sum(float(row["Evictions"]) for row in it.rows("/reports?by=pool", "Discovery")),
    "reports page, services": lambda it: sum(float(row["Evictions"]) for row in it.rows("/reports", "From nodes")),
    "metrics": lambda it: it.metric("evictions_total", outcome="evicted"),
    "metrics by service": lambda it: it.metric("evictions_by_service_total"),
    "notifications": lambda it: sum(
        number(r"(\d+) pods? evicted", each.title) for each in it.sent if "evicted from" in each.title
    ),
}
EVICTIONS_BY_SERVICE: Surfaces = {
    "cycles": lambda it: Counter(str(each.service) for each in made(it)),
    "evictions page": lambda it: Counter(service_of(row) for row in moves(it)),
    "services page": lambda it: {row["Service"]: float(row["Evictions"]) for row in it.rows("/services", "Returned")},
    "report": lambda it: {row[0]: float(row[1]) for row in report_table(it, "Services with")},
    "report, JSON": lambda it: {each["service"]: each["evictions"] for each in report(it)["services"]},
    "reports page": lambda it: {row["Service"]: float(row["Evictions"]) for row in it.rows("/reports", "From nodes")},
    "metrics": lambda it: {
        name: it.metric("evictions_by_service_total", service_name=name.partition("/")[2])
        for name in {str(each.service) for each in made(it)}
    },
    "limits page": lambda it: {
        row["Scope"].removeprefix("service "): float(row["Used"]) for row in it.rows("/limits", "Used")
    },
}
EVICTIONS_BY_NODE: Surfaces = {
    "cycles": lambda it: Counter(each.node for each in made(it)),
    "evictions page": lambda it: Counter(map(from_node, moves(it))),
    "evictions page, nodes": lambda it: {name: float(row["Evictions"]) for name, row in reliefs(it).items()},
    "node pages": lambda it: {name: len(moves(it, f"/nodes/{name}")) for name in RELIEVED},
    "notifications": lambda it: {
        line.split()[0]: float(line.count("shop/"))
        for each in it.sent
        if "evicted from" in each.title
        for line in each.text.splitlines()[:-1]
    },
    "metrics of the pool": lambda it: (
        Counter(each.node for each in made(it))
        if it.metric("evictions_total", outcome="evicted", pool="general") == len(made(it))
        else {}
    ),
}
EVICTIONS_BY_TRIGGER: Surfaces = {
    "cycles": lambda it: Counter(
        str(each.trigger) for each in it.reports for move in each.evictions if str(move.answered.outcome) == "evicted"
    ),
    "evictions page": lambda it: Counter(row["Cycle"] for row in moves(it)),
    "cycles page": lambda it: sum(
        (
            Counter({row["Trigger"]: int(counts(row["Evictions"]).get("evicted", 0))})
            for row in it.rows("/cycles", "Trigger")
        ),
        Counter(),
    ),
    "services page": lambda it: sum(
        (
            Counter({name: int(count) for name, count in re.findall(r"(\w+) (\d+)", row["By trigger"])})
            for row in it.rows("/services", "Returned")
        ),
        Counter(),
    ),
    "report, JSON": lambda it: sum((Counter(each["triggers"]) for each in report(it)["services"]), Counter()),
    "report": lambda it: sum(
        (
            Counter({name: int(count) for name, count in re.findall(r"(\w+) (\d+)", row[3])})
            for row in report_table(it, "Services with")
        ),
        Counter(),
    ),
}
NOT_MADE: Surfaces = {
    "cycles": lambda it: [
        str(move.answered.code)
        for each in it.reports
        for move in each.evictions
        if str(move.answered.outcome) == "refused"
    ],
    "evictions page": lambda it: [
        row["Outcome"].removeprefix("refused")
        for row in it.rows("/evictions", "Outcome")
        if "refused" in row["Outcome"]
    ],
    "cycle pages": lambda it: [
        row["Outcome"].removeprefix("refused")
        for path in cycle_pages(it)
        for row in it.rows(path, "Outcome")
        if "refused" in row["Outcome"]
    ],
    "metrics": lambda it: (
        ["ServerWebhook"] * int(it.metric("evictions_total", outcome="refused", code="ServerWebhook"))
    ),
    "cycles page": lambda it: (
        ["ServerWebhook"]
        * int(sum(counts(row["Evictions"]).get("refused", 0) for row in it.rows("/cycles", "Trigger")))
    ),
}
NO_EFFECT_OF_NOT_MADE: Surfaces = {
    "evictions page": lambda it: {
        row["Effect"] for row in it.rows("/evictions", "Outcome") if "refused" in row["Outcome"]
    },
    "node page": lambda it: {
        row["Effect"] for row in it.rows("/nodes/general-1", "Outcome") if "refused" in row["Outcome"]
    },
}
IN_VAIN: Surfaces = {
    "report, JSON": lambda it: sum(each["ineffectiveEvictions"] for each in report(it)["ineffective"]),
    "report": lambda it: sum(float(row[5]) for row in report_table(it, "Nodes with ineffective")),
    "reports page": lambda it: float(it.rows("/reports", "Ineffective")[-1]["Ineffective"]),
    "evictions page": lambda it: sum(row["Effect"] not in ("cooled", "-", "unknown") for row in moves(it)),
    "services page": lambda it: sum(
        float(found[2]) - float(found[1])
        for row in it.rows("/services", "Returned")
        if (found := re.search(r"(\d+) of (\d+)", row["Node cooled"]))
    ),
    "report, services": lambda it: sum(
        each["effective"]["whole"] - each["effective"]["part"] for each in report(it)["services"]
    ),
    "notifications": lambda it: sum(
        len(moves(it, f"/nodes/{each.labels['node']}")) for each in it.sent if "not cooled" in each.title
    ),
}
SHARES_OF_RELIEVED: Surfaces = {
    "evictions page": lambda it: tuple(reliefs(it)["general-1"][name] for name in ("Before", "After", "Target")),
    "node page": lambda it: re.findall(
        r"before (\S+%) planned \S+% after (\S+%) target (\S+%)", assessments(it, "general-1")
    )[0],
    "notification": lambda it: next(
        re.findall(r"(\S+%) to (\S+%), target (\S+%):", each.text)[0] for each in it.sent if "not cooled" in each.title
    ),
    "report": lambda it: re.findall(r"general-1: (\S+%) to (\S+%), target (\S+%):", it.run("report", "--since", "7d"))[
        0
    ],
    "report, JSON": lambda it: next(
        re.findall(r"general-1: (\S+%) to (\S+%), target (\S+%):", each["example"])[0]
        for each in report(it)["reasons"]
        if each["key"] == "effect/tooFewEvicted"
    ),
}
REPLACED_AFTER: Surfaces = {
    "evictions page": lambda it: sorted(row["Ready"] for row in moves(it)),
    "cycle pages": lambda it: sorted(row["Ready"] for path in cycle_pages(it) for row in moves(it, path)),
    "node pages": lambda it: sorted(row["Ready"] for name in RELIEVED for row in moves(it, f"/nodes/{name}")),
}
TIMES_OF_EVICTIONS: Surfaces = {
    "cycles": lambda it: sorted(int(each.reserved.planned_at) for each in made(it)),
    "evictions page": lambda it: sorted(seconds_of(row) for row in moves(it)),
    "cycle pages": lambda it: sorted(seconds_of(row) for path in cycle_pages(it) for row in moves(it, path)),
    "node pages": lambda it: sorted(seconds_of(row) for name in RELIEVED for row in moves(it, f"/nodes/{name}")),
}


RELIEF: Surfaces = {
    "cycles": lambda it: [f"{each.score.hot_node_minutes:.0f}" for each in it.reports if each.score],
    "cycle pages": lambda it: [
        found[1]
        for path in cycle_pages(it)
        if (found := re.search(r"Relief(\d+) hot node-minutes", it.page(path).text))
    ],
    "cycles page": lambda it: [
        row["Hot node-minutes removed"]
        for row in reversed(it.rows("/cycles", "Trigger"))
        if row["Hot node-minutes removed"] != "-"
    ],
}
RELIEF_IN_ALL: Surfaces = {
    "cycles": lambda it: round(sum(each.score.hot_node_minutes for each in it.reports if each.score)),
    "metrics": lambda it: round(it.metric("relief_hot_node_minutes_total")),
}
CYCLES: Surfaces = {
    "cycles": lambda it: Counter(str(each.trigger) for each in it.reports),
    "cycles page": lambda it: Counter(row["Trigger"] for row in it.rows("/cycles", "Trigger")),
    "metrics": lambda it: {name: it.metric("cycles_total", trigger=name) for name in ("periodic", "alert")},
}
REFUSALS_IN_ALL: Surfaces = {
    "cycles": lambda it: Counter(str(each.code) for report in it.reports for each in report.refusals),
    "cycle pages": lambda it: sum(
        (Counter({row["Code"]: int(row["Pods"])}) for path in cycle_pages(it) for row in it.rows(path, "Code", "Pods")),
        Counter(),
    ),
    "metrics": lambda it: {str(code): n for code in Reason if (n := it.metric("refusals_total", code=str(code)))},
}
FINDINGS_IN_ALL: Surfaces = {
    "cycles": lambda it: sum(len(each.findings) for each in it.reports),
    "cycles page": lambda it: sum(float(row["Findings"]) for row in it.rows("/cycles", "Trigger")),
    "metrics": lambda it: it.metric("findings_total"),
}
FACTS: Mapping[str, Surfaces] = {
    "evictions": EVICTIONS,
    "evictions by service": EVICTIONS_BY_SERVICE,
    "evictions by node": EVICTIONS_BY_NODE,
    "evictions by trigger": EVICTIONS_BY_TRIGGER,
    "evictions that were not made": NOT_MADE,
    "effect of evictions that were not made": NO_EFFECT_OF_NOT_MADE,
    "evictions in vain": IN_VAIN,
    "CPU of a relieved node": SHARES_OF_RELIEVED,
    "time until replacements were Ready": REPLACED_AFTER,
    "times of evictions": TIMES_OF_EVICTIONS,
    "relief by cycle": RELIEF,
    "relief": RELIEF_IN_ALL,
    "cycles": CYCLES,
    "refusals of all cycles": REFUSALS_IN_ALL,
    "findings of all cycles": FINDINGS_IN_ALL,
}
