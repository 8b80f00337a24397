"""The Eviction API, one pod at a time.

Right before the call the pod is read again: a uid that is no longer right answers 409 only *after* it has spent the
budget's room. The call is never sent twice, but for a 401, which did nothing: an answer that doesn't come leaves the
eviction *unknown*, and so does one that the API server didn't write, or an error 5xx that isn't known to have done
nothing. It stays counted until the pod is seen. Sources: pkg/registry/core/pod/storage/eviction.go, v1.36.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import urllib3

from rebalancer.kube.client.client import (
    AnswerLostError,
    ApiClient,
    NotSentError,
    Retries,
    Status,
    StatusError,
    Timeouts,
    retry_after_seconds,
    status_of,
)
from rebalancer.kube.snapshot.records import Pod
from rebalancer.kube.snapshot.snapshot import PODS
from rebalancer.model.cluster.annotations import EVICTION_IN_PROGRESS, REQUEST_EVICT_ONLY
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.errors import RebalancerError
from rebalancer.model.reason import Reason, Refusal

DISRUPTION_BUDGET = "DisruptionBudget"
EVACUATES = "Eviction triggered evacuation"
"""In the 429 of KubeVirt's webhook: it denies the request and migrates the virtual machine. Source: kubevirt,
pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go."""
KUBEVIRT = "kubevirt.io"
"""In the name of its webhook."""
DENIED = re.compile(r"admission webhook .* denied the request|ValidatingAdmissionPolicy .* denied request")
"""Sources: k8s.io/apiserver, pkg/admission/plugin/webhook/errors/statuserror.go and plugin/policy/validating."""


class Proof(NamedTuple):
    """Message of a 5xx that proves that the pod was not deleted."""

    message: re.Pattern[str]
    """Matches from the beginning of the Status' message."""
    outcome: Outcome
    reason: Reason


PROOFS = (
    # Admission comes before the pod is changed, also when the webhook's call ran into a deadline.
    Proof(
        re.compile(
            r'(Internal error occurred: |[\w./-]+ "[^"]*" is forbidden: )?'
            r'admission webhook "[^"]+" (denied the request|does not support dry run)'
        ),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK,
    ),
    Proof(
        re.compile(r'(Internal error occurred: )?failed calling webhook "'),
        Outcome.REFUSED,
        Reason.SERVER_WEBHOOK_FAILED,
    ),
    # Budgets are read and updated before the pod is deleted.
    Proof(
        re.compile(r"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support"),
        Outcome.REFUSED,
        Reason.SERVER_SEVERAL_BUDGETS,
    ),
    Proof(
        re.compile(r'(Timeout: )?couldn\'t update PodDisruptionBudget "[^"]*" due to conflicts'),
        Outcome.FAILED,
        Reason.SERVER_ERROR,
    ),
)
"""Every other 5xx proves nothing: etcd may commit a deletion whose answer is lost ("stream terminated by RST_STREAM",
"error reading from server: EOF"), and a proxy may pass on a request before it times out. Sources: the eviction's,
k8s.io/apiserver pkg/admission/plugin/webhook, and k8s.io/apimachinery pkg/api/errors."""
# Short, because the lease and the pod may change while we wait.
REREAD_TIMEOUTS = Timeouts(connect_seconds=2.0, read_seconds=4.0)
REREAD_RETRIES = Retries(attempts=2, longest_wait_seconds=1.0, total_seconds=2.0)


SEND_SECONDS = 20.0
"""A call that has not left so long after its reservation is not sent: `store.ledger.reconcile` counts on it."""


class _LeaseLostError(NotSentError):
    """The lease ran out before the call could be sent."""


class KubeEvictor:
    """Implements `model.decisions.ports.Evictor`.

    `term` returns the lease's term, which is sent in the User-Agent: the API server's audit log shows which leader
    evicted. `may_send` is checked right before the call leaves: the re-read and a credential plugin take time, in which
    the lease may run out. `deadline_seconds` returns the time left on the lease; without it the client's timeouts
    apply.

    These bound only this process: the call leaves while the lease is held, and connecting and waiting end when the time
    left has passed. They are exceeded by a slow name look-up, and by an address list whose first entries don't answer.
    They don't bound the server: a call that arrived may be carried out after the client timed out, for as long as the
    server lets requests run (60 s by default). So a lost answer is UNKNOWN and stays counted.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        term: Callable[[], int | None] = lambda: None,
        may_send: Callable[[], bool] = lambda: True,
        deadline_seconds: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._term = term
        self._may_send = may_send
        self._deadline_seconds = deadline_seconds
        self._monotonic = monotonic

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """Re-read the pod, then evict it with its uid as precondition. Never raises for an API error.

        A server-side dry run that is accepted is answered as PLANNED. It probes this pod alone: two dry runs under a
        budget with room for one are both accepted. A move by replacement first is not probed.
        """
        if eviction.in_plan.replacement_first:
            # its service would be without a pod; only a process that leads carries out surges
            return Answer(outcome=Outcome.PLANNED) if server_dry_run else _answer(Outcome.FAILED, Reason.LEASE_LOST)
        began = self._monotonic()
        pod = self._reread(eviction)
        if isinstance(pod, Answer):
            return pod
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": eviction.pod, "namespace": eviction.namespace},
            "deleteOptions": {"preconditions": {"uid": eviction.uid}} | ({"dryRun": ["All"]} if server_dry_run else {}),
        }
        term = self._term()
        try:
            response = self._client.send(
                "POST",
                PODS.path(namespace=eviction.namespace, name=eviction.pod, subresource="eviction"),
                msgspec.json.encode(body),
                query={"dryRun": "All"} if server_dry_run else None,
                user_agent=self._client.user_agent if term is None else f"{self._client.user_agent} term/{term}",
                timeouts=None if server_dry_run else partial(self._limits, began),
            )
        except _LeaseLostError:
            return _answer(Outcome.FAILED, Reason.LEASE_LOST)
        except AnswerLostError as error:
            return _answer(Outcome.UNKNOWN, Reason.SERVER_UNKNOWN, str(error))
        except RebalancerError as error:
            # NotSentError, or credentials that could not be refreshed: the server has not seen it.
            return _answer(Outcome.FAILED, Reason.SERVER_ERROR, str(error))
        status = status_of(response.data)
        if (status.kind, status.status) == ("Status", "Success") and response.status in (200, 201, 202):
            return Answer(outcome=Outcome.PLANNED if server_dry_run else Outcome.EVICTED)
        if status.kind != "Status" and response.status != 429:
            # A proxy's page says nothing about the request behind it: a 500 may hide an eviction, a 200 with a login
            # page is none. The API server's flow control answers 429 in plain text.
            text = f"HTTP {response.status}, and not an answer of the API server: {_message(status)}"
            return _answer(Outcome.UNKNOWN, Reason.SERVER_UNKNOWN, text, retry_after_seconds(response))
        answer = _refused(response, status, request_only=REQUEST_EVICT_ONLY in (pod.metadata.annotations or {}))
        return Answer(outcome=Outcome.PLANNED) if server_dry_run and answer.in_background else answer

    def _limits(self, began: float) -> Timeouts:
        """Timeouts of the call; raises NotSentError when it must not be sent any more."""
        if (took := self._monotonic() - began) > SEND_SECONDS:
            raise NotSentError(f"not sent: the pod and the credentials took {took:.0f} s to read")
        if not self._may_send():
            raise _LeaseLostError("the lease was lost")
        usual = self._client.timeouts
        if self._deadline_seconds is None:
            return usual
        left = self._deadline_seconds()
        if left <= 0:
            raise _LeaseLostError("the lease ran out")
        return Timeouts(
            connect_seconds=min(usual.connect_seconds, left),
            read_seconds=min(usual.read_seconds, left),
            total_seconds=left,
        )

    def _reread(self, eviction: Eviction) -> Pod | Answer:
        """The pod, or the result when it is no longer the planned one."""
        path = PODS.path(namespace=eviction.namespace, name=eviction.pod)
        try:
            pod = self._client.read(
                path, Pod, verb="get", resource="pods", timeouts=REREAD_TIMEOUTS, retries=REREAD_RETRIES
            )
        except StatusError as error:
            if error.status == 403:
                return _answer(Outcome.REFUSED, Reason.SERVER_FORBIDDEN, str(error))
            return _answer(Outcome.FAILED, Reason.SERVER_ERROR, str(error))
        except RebalancerError as error:
            return _answer(Outcome.FAILED, Reason.SERVER_ERROR, str(error))
        if pod is None:
            return _answer(Outcome.FAILED, Reason.SERVER_GONE)
        if pod.metadata.uid != eviction.uid:
            return _answer(Outcome.FAILED, Reason.SERVER_UID_CHANGED)
        if pod.metadata.deletion_timestamp is not None:
            return _answer(Outcome.FAILED, Reason.TERMINATING)
        in_progress = EVICTION_IN_PROGRESS in (pod.metadata.annotations or {})
        if in_progress and not eviction.in_plan.despite_progress:
            return _answer(Outcome.FAILED, Reason.EVICTION_IN_PROGRESS)
        if pod.status.phase in ("Succeeded", "Failed") and eviction.target_nodes:
            return _answer(Outcome.FAILED, Reason.FINISHED)
        if pod.spec.node_name != eviction.node:
            return _answer(Outcome.FAILED, Reason.SERVER_GONE, f"it is on node {pod.spec.node_name or '(none)'}")
        return pod


def _refused(response: urllib3.BaseHTTPResponse, status: Status, *, request_only: bool) -> Answer:
    """`request_only`: the pod says that another component carries out its eviction. Older KubeVirt doesn't annotate."""
    wait, message = retry_after_seconds(response), _message(status)
    match response.status:
        case 429 if DISRUPTION_BUDGET in status.causes:
            return _answer(Outcome.REFUSED, Reason.SERVER_BUDGET, message, wait)
        case 429 if EVACUATES in status.message and (request_only or KUBEVIRT in status.message):
            return Answer(outcome=Outcome.EVICTED, in_background=True)
        case code if not 400 <= code < 500:
            proof = next((each for each in PROOFS if each.message.match(status.message)), None)
            if proof is None or code < 500:
                return _answer(Outcome.UNKNOWN, Reason.SERVER_UNKNOWN, f"HTTP {code}: {message}", wait)
            return _answer(proof.outcome, proof.reason, message, wait)
        case _ if DENIED.search(status.message):
            return _answer(Outcome.REFUSED, Reason.SERVER_WEBHOOK, message, wait)
        case 429:
            return _answer(Outcome.REFUSED, Reason.SERVER_THROTTLED, message, wait)
        case 404:
            return _answer(Outcome.FAILED, Reason.SERVER_GONE, message)
        case 409:
            return _answer(Outcome.FAILED, Reason.SERVER_UID_CHANGED, message)
        case 403:
            return _answer(Outcome.REFUSED, Reason.SERVER_FORBIDDEN, message)
        case code:
            return _answer(Outcome.FAILED, Reason.SERVER_ERROR, f"HTTP {code}: {message}")


def _message(status: Status) -> str:
    details = [cause.message for cause in status.details.causes or () if cause.message] if status.details else []
    return " ".join(" ".join([status.message, *details]).split())


def _answer(outcome: Outcome, code: Reason, detail: str = "", wait: float | None = None) -> Answer:
    return Answer(outcome=outcome, refusal=Refusal.of(code, detail), retry_after_seconds=wait)
