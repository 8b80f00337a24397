"""Which evictions have landed, which are late, and which pod took an evicted one's place."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rebalancer.constraints.moves.in_flight import CLOCK_SLACK_SECONDS, EvictionProgress, follow
from rebalancer.model.cluster.owners import Owner, Service
from rebalancer.model.cluster.pods import PENDING, SUCCEEDED
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from tests.builders import NOW, APod, a_node, a_pod, changed, cluster
from tests.builders import an_eviction as eviction_of

NODES = [a_node("n1"), a_node("n2"), a_node("n3")]
EVICTED_AGO = 60.0
MAX_LATE = 3600.0


def an_eviction(
    pod: str = "web-0",
    *,
    ago: float = EVICTED_AGO,
    kind: str = "Deployment",
    service_name: str = "web",
    expected_on: str = "n3",
    **fields: Any,
) -> Eviction:
    """Evicted `ago` seconds before now, off n1, with a target node, when all three replicas were ready; late five
    minutes after that."""
    targets = (TargetNode(expected_on, 1.0),) if expected_on else ()
    known = {"record": 1, "ready_before": 3, "desired_before": 3, "target_nodes": targets}
    times = {"planned_at": NOW - ago, "deadline_at": NOW - ago + 300.0}
    made = eviction_of(**{"pod": pod, "uid": f"uid-shop-{pod}", **known, **times, **fields})
    made.service = Service(kind=kind, namespace="shop", name=service_name)
    return made


def old(name: str, node: str = "n2", *, kind: str = "Deployment", **fields: Any) -> APod:
    return a_pod(name, node, owner="web", owner_kind=kind, **fields)


def new(name: str, node: str = "n3", *, age: float = EVICTED_AGO - 1, **fields: Any) -> APod:
    """A pod that was created after the eviction."""
    return old(name, node, age=age, **fields)


def pending(name: str, **fields: Any) -> APod:
    return new(name, node="", phase=PENDING, ready=False, started=False, **fields)


def service(wanted: int = 3, ready: int | None = None, *, kind: str = "Deployment") -> Owner:
    """As its controller reports it; without `ready` the pods tell."""
    return Owner(kind=kind, namespace="shop", name="web", uid="uid-web", desired=wanted, ready=ready)


LISTED = frozenset({"Deployment", "StatefulSet"})


def progress(
    pods: Sequence[APod],
    *evictions: Eviction,
    owner: Owner | None = None,
    listed: frozenset[str] = LISTED,
    replacements: Sequence[str] = (),
    surges: dict[int, str] | None = None,
) -> list[EvictionProgress]:
    """`listed`: kinds of which all workloads are known, with pods or without."""
    owners = [] if owner is None else [owner]
    made = cluster(NODES, pods, owners=owners, listed_kinds=listed)
    return follow(made, evictions, now=NOW, max_late_seconds=MAX_LATE, replacements=replacements, surges=surges)


@dataclass(frozen=True)
class Case:
    says: str
    pods: list[APod]
    owner: Owner | None = field(default_factory=service)
    eviction: Eviction = field(default_factory=an_eviction)
    replacement: str = ""
    """With its node."""
    landed: bool = False
    late: bool = False
    came_back: bool = False


def overdue() -> Eviction:
    return an_eviction(**OVERDUE)


STAYED = [old("web-1"), old("web-2")]
"""The two replicas that were not touched."""
LEAVING = old("web-0", "n1", terminating=True)
OVERDUE: dict[str, Any] = {"deadline_at": NOW - 0.1}

CASES = [
    Case("the first new pod of the owner, once it is Ready", [*STAYED, new("web-b", age=30), new("web-a", age=40)],
         service(4), replacement="web-a on n3", landed=True),
    Case("a replacement that isn't bound yet has no node, and is no landing", [*STAYED, LEAVING, pending("web-a")],
         replacement="web-a on no node"),
    Case("a replacement that is bound but not Ready", [*STAYED, new("web-a", ready=False)], replacement="web-a on n3"),
    Case("nothing has come yet", [*STAYED, LEAVING]),
    Case("late: nothing came in time", STAYED, eviction=overdue(), late=True),
    Case("late: what came is not Ready in time", [*STAYED, pending("web-a")], eviction=overdue(),
         replacement="web-a on no node", late=True),
    Case("on its deadline it isn't late yet", STAYED, eviction=an_eviction(deadline_at=NOW)),
    Case("past its deadline, but landed: not late", [*STAYED, new("web-a")], eviction=overdue(),
         replacement="web-a on n3", landed=True),
    Case("the replacement came back to the node that its predecessor had left", [*STAYED, new("web-a", "n1")],
         replacement="web-a on n1", landed=True, came_back=True),
    Case("on its way back to the same node: seen before it has landed", [*STAYED, new("web-a", "n1", ready=False)],
         replacement="web-a on n1", came_back=True),
    Case("none after a scale-down: enough are ready", STAYED, service(2), landed=True),
    Case("scaled down to nothing", [old("web-1", terminating=True)], service(0), landed=True),
    Case("scaled down, but still one short of what it wants now", [old("web-1")], service(2)),
    Case("scaled up meanwhile: as many as before are enough",
         [*STAYED, new("web-a"), pending("web-b"), pending("web-c")], service(5), replacement="web-a on n3",
         landed=True),
    Case("it was one short before: as many as then are enough", [*STAYED, new("web-a", ready=False)],
         eviction=an_eviction(ready_before=2), replacement="web-a on n3", landed=True),
    Case("the controller has counted fewer ready pods than the list shows: the replacement is Ready",
         [*STAYED, new("web-a")], service(ready=2), replacement="web-a on n3", landed=True),
    Case("the controller still counts the pod that is leaving", [*STAYED, LEAVING, pending("web-a")],
         service(ready=3), replacement="web-a on no node"),
    Case("the service was deleted: nothing will come", [a_pod("api-0", "n1", owner="api", owner_kind="Deployment")],
         None, overdue(), landed=True),
    Case("a service of the same name in another namespace is another one", [new("web-a", namespace="blog")],
         None, landed=True),
    Case("the call's outcome is unknown and the pod is alive: not landed, although the service is complete",
         [old("web-0", "n1"), *STAYED]),
    Case("alive past the deadline: late", [old("web-0", "n1"), *STAYED], eviction=overdue(), late=True),
    Case("the evicted pod itself is never its replacement, however young",
         [new("web-0", "n1", terminating=True), *STAYED]),
    Case("a pod that was there before is no replacement",
         [*STAYED, old("web-9", age=EVICTED_AGO + CLOCK_SLACK_SECONDS + 1)], landed=True),
    Case("clocks differ: a pod that seems to be a little older than the eviction is its replacement",
         [*STAYED, new("web-a", age=EVICTED_AGO + CLOCK_SLACK_SECONDS)], replacement="web-a on n3", landed=True),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_one_eviction(case: Case) -> None:
    (one,) = progress(case.pods, case.eviction, owner=case.owner)
    found = one.replacement
    assert (one.landed, one.late) == (case.landed, case.late)
    assert ("" if found is None else f"{found.name} on {found.node or 'no node'}") == case.replacement
    assert one.came_back is case.came_back
    if found is not None:
        assert (found.namespace, found.uid) == ("shop", f"uid-shop-{found.name}")


SET: dict[str, Any] = {"kind": "StatefulSet"}


@pytest.mark.parametrize(
    ("pods", "replacement", "landed"),
    [
        # the builder makes a pod's uid from its name: the evicted one's is another here
        ([old("web-1", **SET), old("web-2", **SET), new("web-0", **SET)], "web-0", True),
        ([old("web-1", **SET), old("web-2", **SET), new("web-0", ready=False, **SET)], "web-0", False),
        ([new("web-1", **SET), old("web-2", **SET)], None, False),
        ([new("web-1", **SET), old("web-2", **SET), pending("web-3", **SET)], None, False),
        ([new("web-1", age=50, **SET), new("web-0", age=40, **SET), old("web-2", **SET)], "web-0", True),
    ],
    ids=["there", "not Ready", "another one is new", "scaled up", "two are new"],
)
def test_of_a_statefulset_it_is_the_pod_of_the_same_name(
    pods: list[APod], replacement: str | None, landed: bool
) -> None:
    eviction = an_eviction(kind="StatefulSet", uid="uid-before")
    (one,) = progress(pods, eviction, owner=service(**SET))
    assert (one.replacement.name if one.replacement else None) == replacement
    assert one.landed is landed


def test_a_deployment_and_a_statefulset_of_one_name_are_two_services() -> None:
    pods = [*STAYED, new("web-0", **SET)]
    of_set = an_eviction(record=2, uid="uid-b", kind="StatefulSet", ready_before=1)
    first, second = progress(pods, an_eviction(uid="uid-a"), of_set, owner=service())
    assert (first.landed, first.replacement) == (False, None)
    assert second.landed
    assert second.replacement is not None


def names_of(found: list[EvictionProgress]) -> list[tuple[int, str | None]]:
    return [(each.eviction.reserved.record, each.replacement.name if each.replacement else None) for each in found]


@pytest.mark.parametrize(
    ("evictions", "pods", "pairs", "landed"),
    [
        (
            [("web-2", 20, 3), ("web-0", 60, 1), ("web-1", 40, 2)],
            [pending("z", age=59), pending("y", age=39), pending("x", age=19)],
            [(1, "z"), (2, "y"), (3, "x")],
            [False, False, False],
        ),
        (
            [("web-1", 60, 2), ("web-0", 60, 1)],
            [pending("b"), pending("a"), old("web-2")],
            [(1, "a"), (2, "b")],
            [False, False],
        ),
        ([("web-0", 60, 1), ("web-1", 60, 2)], [new("a"), old("web-2")], [(1, "a"), (2, None)], [True, False]),
        (
            [("web-0", 60, 1), ("web-1", 20, 2)],
            [new("a", age=50), new("b", age=45), old("web-2")],
            [(1, "a"), (2, None)],
            [True, True],
        ),
    ],
    ids=[
        "in order",
        "of one moment the row and the name decide",
        "the older eviction has its pod and the younger one waits",
        "a pod from between two evictions is never the second one's",
    ],
)
def test_several_evictions_of_one_owner_and_their_pods_pair_up(
    evictions: list[tuple[str, float, int]], pods: list[APod], pairs: list[Any], landed: list[bool]
) -> None:
    made = [an_eviction(pod, ago=ago, record=record) for pod, ago, record in evictions]
    found = progress(pods, *made, owner=service())
    assert names_of(found) == pairs
    assert [each.landed for each in found] == landed


def test_evictions_of_several_services_dont_mix() -> None:
    api: dict[str, Any] = {"service_name": "api", "service_identity": "shop/api", "ready_before": 1}
    pods = [*STAYED, new("web-a"), a_pod("api-a", "n2", owner="api", owner_kind="Deployment", age=30)]
    found = progress(pods, an_eviction(record=1), an_eviction("api-0", record=2, **api), owner=service())
    assert names_of(found) == [(1, "web-a"), (2, "api-a")]
    assert [each.landed for each in found] == [True, True]


def test_half_landed_one_is_late_and_the_other_is_not() -> None:
    evictions = [an_eviction("web-0", ago=400, record=1), an_eviction("web-1", ago=30, record=2)]
    found = progress([old("web-2"), pending("a", age=20)], *evictions, owner=service())
    assert [each.late for each in found] == [True, False]


def test_nothing_in_flight_nothing_to_follow() -> None:
    assert progress(STAYED) == []


def test_an_owner_that_does_not_tell_how_many_it_wants_still_wants_as_many_as_before() -> None:
    # the evicted pod is gone, and nothing could be created in its place (a quota, a webhook)
    pods = [old("web-1", kind="CloneSet"), old("web-2", kind="CloneSet")]
    (one,) = progress(pods, an_eviction(kind="CloneSet"), owner=None)
    assert not one.landed


# ---- services without a pod


def test_a_listed_service_whose_last_pod_is_gone_was_not_deleted_and_one_that_is_not_listed_was() -> None:
    only: dict[str, Any] = {"ready_before": 1, "desired_before": 1}
    for more, late in (({}, False), (OVERDUE, True)):
        (one,) = progress([], an_eviction(**only, **more), owner=service(1))
        assert (one.landed, one.late) == (False, late)
    (one,) = progress([], an_eviction(**only))
    assert (one.landed, one.late, one.replacement) == (True, False, None)


@pytest.mark.parametrize(("deadline_in", "over"), [(60.0, False), (0.0, False), (-0.1, True)])
def test_of_a_kind_that_is_not_listed_it_is_waited_for_until_the_deadline(deadline_in: float, over: bool) -> None:
    eviction = an_eviction(kind="CloneSet", deadline_at=NOW + deadline_in, ready_before=1, desired_before=1)
    (one,) = progress([old("api-0")], eviction)
    assert (one.open, one.landed, one.late) == (not over, False, False)


# ---- an eviction doesn't stay in flight for ever


def test_another_pod_of_the_service_that_is_not_ready_does_not_keep_it_in_flight() -> None:
    pods = [old("web-1", ready=False), old("web-2"), new("web-a")]
    (one,) = progress(pods, an_eviction(**OVERDUE), owner=service())
    assert (one.landed, one.late) == (True, False)
    assert one.replacement is not None
    assert one.replacement.name == "web-a"


def test_after_a_scale_down_a_sibling_that_is_not_ready_does_not_keep_it_in_flight() -> None:
    """Two are wanted and two are there, so nothing is going to be made."""
    pods = [old("web-1", ready=False), old("web-2")]
    (one,) = progress(pods, an_eviction(**OVERDUE), owner=service(2))
    assert (one.landed, one.late) == (True, False)
    (one,) = progress(pods, an_eviction(**OVERDUE), owner=service(3))
    assert (one.landed, one.late) == (False, True)


@pytest.mark.parametrize(("evicted", "landed"), [("web-2", True), ("web-0", False)])
def test_a_scaled_down_stateful_set_makes_its_lower_ordinals_again(evicted: str, landed: bool) -> None:
    others = [old(name, ready=False, **SET) for name in ("web-0", "web-1", "web-2") if name != evicted]
    (one,) = progress(others, an_eviction(evicted, kind="StatefulSet", uid="before"), owner=service(2, **SET))
    assert one.landed is landed


def test_an_owner_of_an_unlisted_kind_that_was_scaled_down_is_closed_at_the_deadline() -> None:
    pods = [old("web-1", kind="Rollout"), old("web-2", kind="Rollout")]
    (one,) = progress(pods, an_eviction(kind="Rollout"))
    assert one.open
    (one,) = progress(pods, an_eviction(kind="Rollout", **OVERDUE))
    assert (one.open, one.landed, one.late) == (False, False, False)
    assert "Rollout" in one.closed
    # one that was made and isn't Ready is known to be wanted
    (one,) = progress([*pods, new("web-3", kind="Rollout", ready=False)], an_eviction(kind="Rollout", **OVERDUE))
    assert (one.open, one.late) == (True, True)


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_job_that_has_finished_wants_no_replacement(kind: str) -> None:
    job = Owner(kind="Job", namespace="shop", name="nightly", uid="uid-job", finished=True, parent=-1)
    owners = [job]
    if kind == "CronJob":
        owners = [Owner(kind="CronJob", namespace="shop", name="web", uid="uid-web"), replace(job, parent=0)]
    pods = [a_pod("nightly-b", "n2", owner="nightly", owner_kind="Job", phase=SUCCEEDED, ready=False)]
    name = "nightly" if kind == "Job" else "web"
    eviction = an_eviction("nightly-a", kind=kind, service_name=name, **OVERDUE)
    made = cluster(NODES, pods, owners=owners)
    (one,) = follow(made, [eviction], now=NOW, max_late_seconds=MAX_LATE)
    assert (one.landed, one.late) == (True, False)
    runs = [replace(each, finished=False) for each in owners]
    made = cluster(NODES, pods, owners=runs)
    (one,) = follow(made, [changed(eviction, deadline_at=NOW)], now=NOW, max_late_seconds=MAX_LATE)
    assert one.open


def test_a_replacement_that_has_finished_has_landed() -> None:
    pods = [
        a_pod("nightly-b", "n2", owner="nightly", owner_kind="Job", age=30, phase=SUCCEEDED, ready=False),
        a_pod("nightly-c", "n2", owner="nightly", owner_kind="Job"),
    ]
    (one,) = progress(pods, an_eviction("nightly-a", kind="Job", service_name="nightly", **OVERDUE))
    assert one.landed


@pytest.mark.parametrize(("late_for", "is_open"), [(MAX_LATE - 1, True), (MAX_LATE + 1, False)])
def test_one_that_is_late_for_too_long_stops_nothing_any_more(late_for: float, is_open: bool) -> None:
    (one,) = progress([*STAYED, pending("web-a")], an_eviction(deadline_at=NOW - late_for), owner=service())
    assert (one.open, one.late, one.landed) == (is_open, is_open, False)
    assert one.closed == ("" if is_open else "its replacement was not Ready 1h after the deadline")


@pytest.mark.parametrize(
    ("why", "late", "closed"),
    [("", False, False), ("", True, False), ("the additional pod was not Ready in time", False, True)],
    ids=["open", "open after its deadline", "undone"],
)
def test_a_move_by_replacement_first_is_closed_when_its_surge_was_undone(why: str, late: bool, closed: bool) -> None:
    move = an_eviction(in_background=True, deadline_at=NOW - 60.0 if late else NOW + 60.0)
    alive = [*STAYED, old("web-0", "n1")]
    (one,) = progress(alive, move, owner=service(), surges={move.reserved.record or 0: why})
    assert (one.landed, one.late, bool(one.closed)) == (False, late, closed)
    if closed:
        assert one.closed == f"replacement first was undone: {why}"
    # a pod that has left all the same has landed
    (one,) = progress(STAYED, move, owner=service(), surges={move.reserved.record or 0: why})
    assert (one.landed, one.closed) == (True, "")


def test_an_eviction_in_the_background_is_in_flight_until_its_pod_is_gone() -> None:
    """The virtual machine runs on, and its pod stays Ready, until the migration is done."""
    vm: dict[str, Any] = {"kind": "VirtualMachineInstance"}
    eviction = an_eviction(in_background=True, ready_before=1, desired_before=1, **vm)
    source = old("web-0", "n1", **vm)
    (one,) = progress([source, pending("web-a", **vm)], eviction)
    assert (one.open, one.late) == (True, False)
    for left in (old("web-0", "n1", phase=SUCCEEDED, ready=False, **vm), old("web-0", "n1", terminating=True, **vm)):
        (one,) = progress([left, new("web-a", **vm)], eviction)
        assert one.landed
        assert one.replacement is not None
    (one,) = progress([source], changed(eviction, **OVERDUE))
    assert (one.open, one.late, one.landed) == (False, False, False)
    assert one.closed == "its eviction in the background did not move it in time"
