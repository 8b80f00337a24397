"""Evictions in our Events: what is written is read back, and what others write does no harm."""

import json
import math
from typing import Any

import pytest

from rebalancer.kube.actions.eviction_events import EVICTION_ANNOTATION, eviction_annotation, read_eviction_events
from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Eviction, Outcome, PodAmount, TargetNode, eviction_of
from tests.kube.fakes.api import Reply, serving

CREATED, CREATED_AT = "2027-01-15T08:00:00Z", 1800000000.0


def an_eviction(**fields: Any) -> Eviction:
    usual: dict[str, Any] = {
        "namespace": "shop",
        "pod": "web-1",
        "uid": "uid-1",
        "node": "hot",
        "pool": "general",
        "service": Service(kind="Deployment", namespace="shop", name="web"),
        "strategy": "LowNodeUtilization",
        "reason": "hot was at 91%",
        "service_identity": "shop/web",
        "level": "gold",
        "owner_uid": "u-1",
        "target_nodes": (TargetNode("cool", 1.0),),
        "target_pool": "general",
        "pull_bytes": 5.0,
        "planned_at": CREATED_AT - 7.0,
        "ready_before": 3,
        "desired_before": 4,
        "grace_seconds": 30.0,
        "deadline_at": CREATED_AT + 60.0,
        "outcome": Outcome.EVICTED,
    }
    return eviction_of(**{**usual, **fields})


def read(*annotations: str, created: str | None = CREATED) -> list[Eviction]:
    """The evictions of a list of Events with these annotations, and one without."""
    metadata = {"namespace": "shop", "creationTimestamp": created}
    items = [{"metadata": metadata}]
    items += [{"metadata": {**metadata, "annotations": {EVICTION_ANNOTATION: each}}} for each in annotations]
    document = {"metadata": {"resourceVersion": "1"}, "items": items}
    with serving(lambda _: Reply(body=json.dumps(document).encode())) as (_, client):
        return read_eviction_events(client)


def annotation(eviction: Eviction, **fields: Any) -> str:
    """As it is written, with these fields changed."""
    return json.dumps(json.loads(eviction_annotation(eviction)[EVICTION_ANNOTATION]) | fields)


def test_an_eviction_is_read_back_as_it_was_written() -> None:
    assert read(annotation(an_eviction())) == [an_eviction()]
    unknown = an_eviction(outcome=Outcome.UNKNOWN, target_nodes=(), level="", in_background=True)
    assert read(annotation(unknown)) == [unknown]


def test_what_the_pod_used_of_each_resource_is_read_back() -> None:
    amounts = {"memory": PodAmount(2e9, 0.12), "licences": PodAmount(3.0, math.nan)}
    whole = an_eviction(cpu_millicores=750.5, resource="memory", amounts=amounts)
    assert read(annotation(whole)) == [whole]
    assert read(annotation(whole, amounts={"memory": "much"})) == []


def test_an_annotation_from_the_future_counts_from_when_the_server_got_it() -> None:
    (found,) = read(annotation(an_eviction(planned_at=CREATED_AT + 1e6)))
    assert found.reserved.planned_at == CREATED_AT + 1.0
    (found,) = read(annotation(an_eviction(planned_at=math.nan)))
    assert found.reserved.planned_at == CREATED_AT + 1.0
    assert read(annotation(an_eviction()), created=None) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        "NaN",
        annotation(an_eviction(), uid=""),
        annotation(an_eviction(), outcome="refused"),
        annotation(an_eviction(), plannedAt="now"),
    ],
    ids=["empty", "no fields", "deep", "no JSON", "no uid", "did not happen", "no time"],
)
def test_what_is_no_eviction_is_left_out(text: str) -> None:
    assert read(text) == []


def test_of_two_events_about_one_pod_the_newer_eviction_counts() -> None:
    old, new = an_eviction(planned_at=CREATED_AT - 50.0), an_eviction(planned_at=CREATED_AT - 5.0)
    assert read(annotation(new), annotation(old)) == [new]
    assert [each.uid for each in read(annotation(an_eviction(uid="b", planned_at=1.0)), annotation(old))] == [
        "b",
        "uid-1",
    ]
