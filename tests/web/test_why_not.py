"""Why not more is evicted, on the overview."""

from typing import Any

from rebalancer.model.reason import Reason
from rebalancer.model.records.cycles import RefusalExample
from rebalancer.web.pages.overview import REASONS_AT_ONCE, Evaluated, why_not
from tests.web.builders import NOW, a_cycle_line, a_node, a_node_page, a_refusal, an_episode
from tests.web.fakes import Clients, Daemon
from tests.web.readers import Element, faults, links, read_page
from tests.web.scenarios import HandMade, the_app

WEB, DB = (RefusalExample(pod=pod, message="", cpu_millicores=1.0) for pod in ("shop/web-1", "shop/db-0"))
NODE = RefusalExample(pod="", message="not hot for long enough", cpu_millicores=None)
SERVICES = {"shop/web-1": "shop/web", "shop/db-0": "shop/db"}
GROUPS = (
    a_refusal(Reason.TOO_YOUNG, node="node-1", count=3, examples=(WEB,)),
    a_refusal(Reason.TOO_YOUNG, node="node-2", count=4, examples=(DB, WEB), at=NOW - 5),
    a_refusal(
        Reason.DAEMONSET_POD,
        node="node-1",
        count=40,
        examples=(RefusalExample(pod="ops/agent", message="", cpu_millicores=None),),
    ),
    a_refusal(Reason.STABILIZATION_WINDOW, node="node-3", count=1, examples=(NODE,)),
    a_refusal(Reason.NO_NODE_WITH_HEADROOM, node="node-2", count=9, examples=(WEB,)),
)


def page_of(clients: Clients, daemon: Daemon, shown: HandMade, path: str = "/") -> Element:
    page = read_page(clients(the_app(shown, daemon)).get(path).body)
    assert faults(page) == []
    return page.one("main")


def test_the_most_frequent_reasons_come_first_and_what_nothing_lifts_last() -> None:
    found = why_not(GROUPS, SERVICES)
    assert [(each.code, each.pods, each.nodes) for each in found] == [
        ("NoNodeWithHeadroom", 9, ("node-2",)),
        ("TooYoung", 7, ("node-2", "node-1")),
        ("StabilizationWindow", 0, ("node-3",)),
        ("DaemonSetPod", 40, ("node-1",)),
    ]
    young = found[1]
    assert (young.services, young.at) == (("shop/db", "shop/web"), NOW - 5)
    assert young.lifted_by == Reason.TOO_YOUNG.lifted_by
    assert found[3].services == (), "its pod has left since"


def test_few_reasons_are_shown() -> None:
    groups = [a_refusal(code, count=number) for number, code in enumerate(Reason, start=1)]
    assert len(why_not(groups, {})) == REASONS_AT_ONCE


def test_each_reason_has_what_lifts_it_and_leads_to_its_nodes_and_services(clients: Clients, daemon: Daemon) -> None:
    main = page_of(clients, daemon, HandMade(why_not=why_not(GROUPS, SERVICES)))
    section = main.one("section", aria_labelledby="why")
    assert [each.text for each in section.all("li")][1:3] == [
        "7 pods TooYoung younger than the minimum age. Lifted by time: guards.minAge after its start. "
        "On node-2, node-1; of shop/db, shop/web",
        "1 node StabilizationWindow not hot for long enough. Lifted by hot readings over usage.stabilizationWindow. "
        "On node-3",
    ]
    assert {"/nodes/node-2", "/nodes/node-3", "/services/shop%2Fweb"} <= links(section)
    cool = page_of(clients, daemon, HandMade())
    assert cool.all("section", aria_labelledby="why") == []


def last_cycle(main: Element) -> str:
    return main.one("section", aria_labelledby="last").text


def test_findings_of_a_cycle_stand_beside_what_it_evaluated(clients: Clients, daemon: Daemon) -> None:
    nodes = [*(a_node(f"general-{number}", 0.9) for number in range(2)), a_node("batch-1", 0.9, pool="batch")]
    given: dict[str, Any] = {"nodes": nodes, "cycle_lines": [a_cycle_line()]}
    one_pool = HandMade(evaluated=Evaluated(nodes=2, pools=("general",)), **given)
    assert "Evaluated 2 of 3 nodes (general): 2 hot, 2 findings, 9 refusals" in last_cycle(
        page_of(clients, daemon, one_pool)
    )
    all_pools = HandMade(evaluated=Evaluated(nodes=3, pools=("general", "batch")), **given)
    assert "Evaluated 3 of 3 nodes: 2 hot, 2 findings" in last_cycle(page_of(clients, daemon, all_pools))
    unknown = HandMade(evaluated=None, **given)
    assert "alert 2 findings, 9 refusals" in last_cycle(page_of(clients, daemon, unknown))


def test_only_a_node_that_is_hot_now_is_called_still_hot(clients: Clients, daemon: Daemon) -> None:
    for share, said in ((0.9, "still hot"), (0.5, "cool now"), (None, "end not known")):
        line = a_node("node-1", share)
        shown = HandMade(pages={"node-1": a_node_page(line, episodes=(an_episode(ended_at=None),))})
        section = page_of(clients, daemon, shown, "/nodes/node-1").one("section", aria_labelledby="episodes")
        assert said in section.text
        assert ("still hot" in section.text) == (share == 0.9)
