"""Pods, the search, the timeline and the policy as the dashboard shows them of a real cluster."""

from dataclasses import replace

import yaml

from rebalancer.dashboard.views import LiveViews
from rebalancer.model.decisions.eviction import Outcome
from tests.dashboard.test_views import Shown, it

__all__ = ["it"]


def test_the_pods_of_a_node_now_with_their_cpu_and_why_they_stay(it: Shown) -> None:
    report = it.cycle("warm-1", dry_run=True)
    page = it.views.node("warm-1")
    assert page is not None
    here = {each.full_name: each for each in page.pods}
    with it.lab.cluster.lock:
        there = {
            f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            for each in it.lab.cluster.store.sorted("pods")
            if each["spec"].get("nodeName") == "warm-1"
        }
    assert here.keys() == there
    [gone] = report.evictions
    refused = {f"{each.namespace}/{each.name}": each for each in report.refusals if each.node == "warm-1" and each.name}
    assert refused
    for name, refusal in refused.items():
        assert (here[name].code, here[name].message) == (refusal.code.value, refusal.message)
        assert here[name].refused_at == report.started_at
    planned = here[gone.full_name]
    assert (planned.code, planned.message) == ("", "")
    assert planned.cpu_millicores == gone.cpu_millicores
    assert page.stays == {refusal.code.value: len(refused) for refusal in refused.values()}


def test_a_guard_as_of_now_goes_before_the_refusal_of_a_cycle(it: Shown) -> None:
    report = it.cycle("warm-1")
    [gone] = report.evictions
    page = it.views.node("warm-1")
    assert page is not None
    codes = {each.full_name: (each.code, each.refused_at) for each in page.pods}
    assert codes.pop(gone.full_name) == ("Terminating", None)
    assert set(codes.values()) == {("OwnerNotHealthy", None)}


def test_a_page_after_pods_came_and_went_has_the_reasons_of_its_own_pods(it: Shown) -> None:
    before = it.views.node("warm-1")
    assert before is not None
    [gone] = it.cycle("warm-1").evictions
    page = it.views.node("warm-1")
    assert page is not None
    codes = {each.full_name: each.code for each in page.pods}
    assert codes.pop(gone.full_name) == "Terminating"
    assert set(codes.values()) == {"OwnerNotHealthy"}


def test_the_search_finds_a_node_a_pod_and_a_service(it: Shown) -> None:
    it.cycle("warm-1")
    whole = it.views.search("warm-1")
    assert [each.name for each in whole.nodes] == ["warm-1"]
    assert [(each.name, each.kind, each.pods) for each in whole.services] == [("shop/svc-warm-1", "Deployment", 4)]
    [gone] = whole.evictions
    assert gone.answered.outcome is Outcome.EVICTED
    pod = next(each for each in whole.pods if each.node == "warm-1")
    assert it.views.search(pod.full_name.upper()).pods == (pod,)
    assert it.views.search(pod.name).pods[0] == pod
    nothing = it.views.search("no such name")
    assert [*nothing.nodes, *nothing.pods, *nothing.services, *nothing.evictions] == []


def test_a_service_that_was_never_evicted_has_a_page_with_its_pods(it: Shown) -> None:
    page = it.views.service("shop/svc-warm-2")
    assert page is not None
    assert page.evictions == ()
    assert {each.node for each in page.pods} == {"warm-2"}
    assert len(page.pods) == 3


def test_the_timeline_has_each_eviction_with_its_node_before_and_as_planned(it: Shown) -> None:
    it.world = replace(it.world, effect=it.records.effect())
    first, second = it.cycle("warm-1"), it.cycle("warm-2")
    page = it.views.timeline(3600.0)
    assert [each.node for each in page.evictions] == ["warm-2", "warm-1"]
    assert not page.more
    [later, relief] = page.reliefs
    assert (relief.cycle, relief.node, page.counts[first.id, "warm-1"]) == (first.id, "warm-1", 1)
    assert relief.planned_share < relief.before_share
    assert (relief.after_share, relief.outcome) == (None, None)
    assert (later.cycle, later.node) == (second.id, "warm-2")
    it.lab.clock.sleep(100)
    assert it.views.timeline(60.0).evictions == ()


def test_the_addresses_of_grafana_and_of_the_docs_reach_the_pages(it: Shown) -> None:
    head = LiveViews(replace(it.sources, grafana_url="https://grafana/d/1", docs_url="https://host/main/")).head()
    assert (head.grafana, head.docs) == ("https://grafana/d/1", "https://host/main")


def test_every_effective_value_of_the_policy_and_where_it_is_from(it: Shown) -> None:
    data = yaml.safe_dump(
        it.policy.model_dump(mode="json", by_alias=True, exclude_unset=True), sort_keys=False
    ).encode()
    views = LiveViews(replace(it.sources, policy_data=lambda: data))
    fields = {each.path: each for each in views.policy()}
    assert (fields["guards.hostPath"].value, fields["guards.hostPath"].line) == ("false", None)
    high = fields["pools[0].thresholds.high"]
    assert (high.value, high.section) == ("90", "pools")
    assert data.decode().splitlines()[(high.line or 0) - 1].strip() == "high: 90.0"


def test_the_page_of_a_node_that_is_about_to_go_says_so(it: Shown) -> None:
    page = it.views.node("warm-1")
    assert page is not None
    assert page.soon == ()
    it.lab.cluster.taint("warm-1", "ToBeDeletedByClusterAutoscaler")
    it.cycle("warm-1", dry_run=True)
    page = it.views.node("warm-1")
    assert page is not None
    assert page.soon == (
        f"it is about to go (taint ToBeDeletedByClusterAutoscaler), and {len(page.pods)} pods with it",
    )
