import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.actions.evict import SEND_SECONDS, KubeEvictor
from rebalancer.kube.client.client import connect
from rebalancer.model.decisions.eviction import Answer, InPlan, Outcome, TargetNode
from rebalancer.model.reason import Reason
from rebalancer.model.secrets import remember
from tests.builders import an_eviction
from tests.kube.builders import Json, a_pod
from tests.kube.fakes.api import Asked, FakeApi, Reply, Script, client_of, serving, status
from tests.kube.test_client import kubeconfig

MOVE = an_eviction(pod="web-1", uid="uid-shop-web-1", target_nodes=(TargetNode("n2", 1.0),))
BUDGET_CAUSE = ("DisruptionBudget", "The disruption budget web needs 2 healthy pods and has 2 currently")
CREATED = Reply(status=201, body={"kind": "Status", "status": "Success"})


DENIED = 'admission webhook "guard.example.com" denied the request:'
KUBEVIRT = (
    'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
    'Eviction triggered evacuation of VMI "shop/vm"'
)


def pod_then(answer: Reply, pod: Json | None = None) -> Script:
    """The pod as planned, then this answer to its eviction."""

    def script(asked: Asked) -> Reply:
        return answer if asked.method == "POST" else Reply(body=a_pod("web-1") if pod is None else pod)

    return script


def evict(script: Script, *, dry: bool = False, read_seconds: float = 5.0) -> tuple[Answer, FakeApi]:
    with serving(script, read_seconds=read_seconds, attempts=1) as (api, client):
        return KubeEvictor(client=client).evict(MOVE, server_dry_run=dry), api


def code_of(answer: Answer) -> Reason | None:
    return answer.refusal.code if answer.refusal else None


def test_an_eviction_carries_the_uid_and_the_term() -> None:
    with serving(pod_then(CREATED)) as (api, client):
        answer = KubeEvictor(client=client, term=lambda: 7).evict(MOVE)
    assert answer == Answer(outcome=Outcome.EVICTED)
    get, post = api.asked
    assert (get.method, get.path) == ("GET", "/api/v1/namespaces/shop/pods/web-1")
    assert (post.method, post.path) == ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction")
    assert post.body["apiVersion"] == "policy/v1"
    assert post.body["deleteOptions"] == {"preconditions": {"uid": "uid-shop-web-1"}}
    assert post.headers["User-Agent"] == "rebalancer/test term/7"
    assert not post.query


def test_a_server_dry_run_asks_for_one_and_stays_planned() -> None:
    answer, api = evict(pod_then(CREATED), dry=True)
    assert answer == Answer(outcome=Outcome.PLANNED)
    assert api.asked[1].body["deleteOptions"]["dryRun"] == ["All"]
    assert api.asked[1].query == {"dryRun": "All"}


ANSWERS: dict[str, tuple[Reply, Outcome, Reason]] = {
    "429 with the budget's cause": (
        status(429, "Cannot evict pod as it would violate the pod's disruption budget.", BUDGET_CAUSE),
        Outcome.REFUSED,
        Reason.SERVER_BUDGET,
    ),
    "429 without": (status(429, "too many requests"), Outcome.REFUSED, Reason.SERVER_THROTTLED),
    "429 of a proxy": (Reply(status=429, body=b"slow down"), Outcome.REFUSED, Reason.SERVER_THROTTLED),
    "500 for several budgets": (
        status(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
        Outcome.REFUSED,
        Reason.SERVER_SEVERAL_BUDGETS,
    ),
    "500": (status(500, "internal error"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "500 for a stream of etcd that ended": (
        status(500, "rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: NO_ERROR"),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
    "500 for a connection to etcd that ended": (
        status(500, "rpc error: code = Unknown desc = error reading from server: EOF"),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
    "500 that quotes a refusal": (
        status(500, 'rpc error: EOF after "This pod has more than one PodDisruptionBudget"'),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
    "507": (status(507, "no room"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "200 with a failure": (status(200, "failed"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "500 of a webhook": (
        status(500, f"Internal error occurred: {DENIED} not now"),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK,
    ),
    "504 for a budget that others keep changing": (
        status(504, 'Timeout: couldn\'t update PodDisruptionBudget "shop/web" due to conflicts'),
        Outcome.FAILED,
        Reason.SERVER_ERROR,
    ),
    "500 that ran into a deadline": (
        status(500, "etcdserver: request timed out"),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
    "500 of a proxy": (Reply(status=500, body=b"upstream failed"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "200 with a login page": (Reply(status=200, body=b"<html>Sign in"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "200 with JSON of something else": (Reply(status=200, body={"ok": True}), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "201 without a body": (Reply(status=201, body=b""), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "403 of a proxy": (Reply(status=403, body=b"<html>"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "302": (Reply(status=302, body=b""), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "502": (Reply(status=502, body=b"<html>"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "503": (Reply(status=503), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "503 with the body of a success": (
        Reply(status=503, body={"kind": "Status", "status": "Success"}),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
    "504": (status(504, "timeout"), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "404": (status(404, "not found"), Outcome.FAILED, Reason.SERVER_GONE),
    "409": (status(409, "Precondition failed: UID in precondition"), Outcome.FAILED, Reason.SERVER_UID_CHANGED),
    "403": (status(403, "forbidden"), Outcome.REFUSED, Reason.SERVER_FORBIDDEN),
    "403 of a webhook": (status(403, f"{DENIED} not now"), Outcome.REFUSED, Reason.SERVER_WEBHOOK),
    "400 of a webhook": (status(400, f"{DENIED} not now"), Outcome.REFUSED, Reason.SERVER_WEBHOOK),
    "429 of a webhook": (status(429, f"{DENIED} not now"), Outcome.REFUSED, Reason.SERVER_WEBHOOK),
    "429 of a webhook that only looks like KubeVirt's": (
        status(429, f"{DENIED} Eviction triggered evacuation of the car park"),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK,
    ),
    "403 of a webhook without explanation": (
        status(403, 'admission webhook "guard.example.com" denied the request without explanation'),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK,
    ),
    "422 of an admission policy": (
        status(
            422,
            "pods \"web-1\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'shop' denied request: no",
        ),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK,
    ),
    "500 for a webhook that can't be called": (
        status(500, 'Internal error occurred: failed calling webhook "guard.example.com": context deadline exceeded'),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK_FAILED,
    ),
    "401": (status(401, "Unauthorized"), Outcome.FAILED, Reason.SERVER_ERROR),
    "422": (status(422, "invalid"), Outcome.FAILED, Reason.SERVER_ERROR),
    "a cut connection": (Reply(drop=True), Outcome.UNKNOWN, Reason.SERVER_UNKNOWN),
    "an answer cut half-way": (
        Reply(status=201, body={"kind": "Status"}, cut=True),
        Outcome.UNKNOWN,
        Reason.SERVER_UNKNOWN,
    ),
}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS.keys())
def test_every_answer_has_its_outcome_and_is_asked_for_once(case: tuple[Reply, Outcome, Reason]) -> None:
    reply, outcome, code = case
    answer, api = evict(pod_then(reply))
    assert (answer.outcome, code_of(answer)) == (outcome, code)
    assert api.count("POST") == 1
    assert answer.refusal is not None
    assert "\n" not in answer.refusal.message


@pytest.mark.parametrize(
    ("message", "annotations"),
    [
        (KUBEVIRT, {}),
        (
            f'{DENIED} Eviction triggered evacuation of "web-1"',
            {"descheduler.alpha.kubernetes.io/request-evict-only": ""},
        ),
    ],
    ids=["KubeVirt's webhook", "a pod that asks for requests only"],
)
def test_an_evacuation_is_an_eviction_in_the_background(message: str, annotations: dict[str, str]) -> None:
    script = pod_then(status(429, message), a_pod("web-1", metadata={"annotations": annotations}))
    answer, api = evict(script)
    assert answer == Answer(outcome=Outcome.EVICTED, in_background=True)
    assert api.count("POST") == 1
    answer, _ = evict(script, dry=True)
    assert answer == Answer(outcome=Outcome.PLANNED)


def test_a_pod_whose_eviction_is_in_progress_is_not_asked_for_again() -> None:
    noted = {"annotations": {"descheduler.alpha.kubernetes.io/eviction-in-progress": "kubevirt"}}
    answer, api = evict(pod_then(CREATED, a_pod("web-1", metadata=noted)))
    assert (answer.outcome, code_of(answer)) == (Outcome.FAILED, Reason.EVICTION_IN_PROGRESS)
    assert api.count("POST") == 0


def test_the_annotation_does_not_count_where_the_policy_does_not_trust_it() -> None:
    noted = {"annotations": {"descheduler.alpha.kubernetes.io/eviction-in-progress": "a tenant"}}
    move = replace(MOVE, in_plan=InPlan(despite_progress=True))
    with serving(pod_then(CREATED, a_pod("web-1", metadata=noted))) as (api, client):
        answer = KubeEvictor(client=client).evict(move)
    assert answer.outcome is Outcome.EVICTED
    assert api.count("POST") == 1


def test_the_budgets_name_and_the_servers_wait_are_in_the_answer() -> None:
    reply = status(429, "Cannot evict pod", BUDGET_CAUSE, headers={"Retry-After": "10"})
    answer, _ = evict(pod_then(reply))
    assert answer.retry_after_seconds == 10.0
    assert answer.refusal is not None
    assert "The disruption budget web" in answer.refusal.message


def test_the_wait_of_a_throttled_call_is_in_the_answer() -> None:
    answer, _ = evict(pod_then(status(429, "too many requests", headers={"Retry-After": "17"})))
    assert (answer.outcome, code_of(answer)) == (Outcome.REFUSED, Reason.SERVER_THROTTLED)
    assert answer.retry_after_seconds == 17.0


@pytest.mark.parametrize(
    "reply",
    [status(403, "not with the-secret-word"), Reply(status=500, body=b"<p>the-secret-word</p>")],
    ids=["API server", "proxy"],
)
def test_a_secret_in_an_answer_is_in_no_refusal(reply: Reply) -> None:
    remember("the-secret-word")
    answer, _ = evict(pod_then(reply))
    assert answer.refusal is not None
    assert "***" in answer.refusal.message
    assert "the-secret-word" not in answer.refusal.message


def test_no_answer_in_time_is_unknown() -> None:
    release = threading.Event()
    answer, api = evict(pod_then(Reply(hang_until=release)), read_seconds=0.1)
    release.set()
    assert (answer.outcome, code_of(answer)) == (Outcome.UNKNOWN, Reason.SERVER_UNKNOWN)
    assert api.count("POST") == 1


CHANGED: dict[str, tuple[Reply, Outcome, Reason]] = {
    "gone": (status(404), Outcome.FAILED, Reason.SERVER_GONE),
    "another uid": (Reply(body=a_pod("web-1", metadata={"uid": "new"})), Outcome.FAILED, Reason.SERVER_UID_CHANGED),
    "terminating": (
        Reply(body=a_pod("web-1", metadata={"deletionTimestamp": "2026-11-21T04:00:00Z"})),
        Outcome.FAILED,
        Reason.TERMINATING,
    ),
    "finished": (Reply(body=a_pod("web-1", status={"phase": "Succeeded"})), Outcome.FAILED, Reason.FINISHED),
    "on another node": (Reply(body=a_pod("web-1", node="n2")), Outcome.FAILED, Reason.SERVER_GONE),
    "not readable": (Reply(body=b"<html>"), Outcome.FAILED, Reason.SERVER_ERROR),
    "forbidden": (status(403), Outcome.REFUSED, Reason.SERVER_FORBIDDEN),
    "no answer": (Reply(drop=True), Outcome.FAILED, Reason.SERVER_ERROR),
    "server error": (Reply(status=503), Outcome.FAILED, Reason.SERVER_ERROR),
}


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED.keys())
def test_a_pod_that_is_not_as_planned_is_not_evicted(case: tuple[Reply, Outcome, Reason]) -> None:
    reply, outcome, code = case
    answer, api = evict(lambda _: reply)
    assert (answer.outcome, code_of(answer)) == (outcome, code)
    assert api.count("POST") == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_to_go_because_it_has_finished_is_evicted(phase: str) -> None:
    finished = a_pod("web-1", status={"phase": phase})
    with serving(pod_then(CREATED, finished)) as (api, client):
        answer = KubeEvictor(client=client).evict(replace(MOVE, target_nodes=()))
    assert answer == Answer(outcome=Outcome.EVICTED)
    assert api.count("POST") == 1


def test_a_refused_connection_certainly_evicted_nothing() -> None:
    with FakeApi(lambda _: Reply()) as api:
        url = api.url
    answer = KubeEvictor(client=client_of(url, attempts=1)).evict(MOVE)
    assert (answer.outcome, code_of(answer)) == (Outcome.FAILED, Reason.SERVER_ERROR)


def test_the_answer_is_waited_for_no_longer_than_the_lease_lasts() -> None:
    release = threading.Event()
    with serving(pod_then(Reply(hang_until=release)), read_seconds=5.0, attempts=1) as (api, client):
        start = time.monotonic()
        answer = KubeEvictor(client=client, deadline_seconds=lambda: 0.2).evict(MOVE)
        took = time.monotonic() - start
        release.set()
    assert 0.2 <= took < 2
    assert (answer.outcome, code_of(answer)) == (Outcome.UNKNOWN, Reason.SERVER_UNKNOWN)
    assert answer.refusal is not None
    assert "no answer within 0.2 s" in answer.refusal.message
    assert api.count("POST") == 1


def test_a_lease_that_lasts_long_leaves_the_clients_time_limit() -> None:
    release = threading.Event()
    with serving(pod_then(Reply(hang_until=release)), read_seconds=0.1, attempts=1) as (_, client):
        answer = KubeEvictor(client=client, deadline_seconds=lambda: 9.0).evict(MOVE)
        release.set()
    assert answer.refusal is not None
    assert "no answer within 0.1 s" in answer.refusal.message


@pytest.mark.parametrize(
    "lease", [{"may_send": lambda: False}, {"deadline_seconds": lambda: 0.0}], ids=["ran out", "no time left"]
)
def test_without_the_lease_nothing_is_sent_after_the_reread(lease: dict[str, Any]) -> None:
    with serving(pod_then(CREATED)) as (api, client):
        answer = KubeEvictor(client=client, **lease).evict(MOVE)
    assert (answer.outcome, code_of(answer)) == (Outcome.FAILED, Reason.LEASE_LOST)
    assert api.count("POST") == 0


def test_a_call_that_would_leave_long_after_its_reservation_is_not_sent() -> None:
    """The ledger counts a call for as long as it may be on its way."""
    now = iter([100.0, 100.0 + SEND_SECONDS + 0.1])
    with serving(pod_then(CREATED)) as (api, client):
        answer = KubeEvictor(client=client, monotonic=lambda: next(now)).evict(MOVE)
    assert (answer.outcome, code_of(answer)) == (Outcome.FAILED, Reason.SERVER_ERROR)
    assert answer.refusal is not None
    assert "not sent: the pod and the credentials took 20 s to read" in answer.refusal.message
    assert api.count("POST") == 0


def test_a_server_dry_run_needs_no_lease() -> None:
    with serving(pod_then(CREATED)) as (_, client):
        evictor = KubeEvictor(client=client, may_send=lambda: False, deadline_seconds=lambda: 0.0)
        assert evictor.evict(MOVE, server_dry_run=True).outcome == Outcome.PLANNED


@pytest.mark.parametrize("still_ours", [True, False])
def test_after_a_401_the_lease_is_asked_for_again_before_the_eviction_is_sent_again(
    still_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebalancer.kube.client.client.CREDENTIALS_MIN_AGE_SECONDS", 0.0)
    answers = iter([status(401), CREATED])
    held = iter([True, still_ours])
    with FakeApi(lambda asked: next(answers) if asked.method == "POST" else Reply(body=a_pod("web-1"))) as api:
        client = connect(kubeconfig(tmp_path / "k", server=api.url), None, "x")
        answer = KubeEvictor(client=client, may_send=lambda: next(held)).evict(MOVE)
        client.close()
    if still_ours:
        assert answer.outcome == Outcome.EVICTED
        assert api.count("POST") == 2
    else:
        assert (answer.outcome, code_of(answer)) == (Outcome.FAILED, Reason.LEASE_LOST)
        assert api.count("POST") == 1
