"""The Eviction API: `pods/eviction`."""

import asyncio
from fnmatch import fnmatchcase
from typing import Any, Protocol

from starlette.requests import Request

from rebalancer.lab.controlplane.owned import terminate
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.disruption import check_eviction, update_statuses
from rebalancer.lab.objects.errors import ApiError, bad_request
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.serving import ServedLab
from rebalancer.model.cluster.annotations import EVICTION_IN_PROGRESS

EVACUATES = "Eviction triggered evacuation"
REASONS = {400: "BadRequest", 403: "Forbidden", 429: "TooManyRequests"}

SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class PodTarget(Protocol):
    """The pod in the path."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


async def evict(lab: ServedLab, target: PodTarget, request: Request, body: Any) -> Obj:
    """Evict or refuse; the log records request and result. Raises ApiError 400, 404, 409, 429, 500.

    With the fault `eviction_delay_seconds` the pod is evicted at once and the answer is delayed.
    """
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise bad_request("the body must be an Eviction")
    if body.get("apiVersion", "policy/v1") not in ("policy/v1", "policy/v1beta1"):
        raise bad_request(f"no kind Eviction in version {body['apiVersion']!r}")
    options = body.get("deleteOptions") or {}
    dry_run = request.query_params.get("dryRun") == "All" or "All" in (options.get("dryRun") or ())
    uid = (options.get("preconditions") or {}).get("uid")
    code, detail, pod = 201, "", None
    try:
        with lab.cluster.lock:
            pod = lab.cluster.store.get("pods", target.namespace, target.name)
            _admit(lab, pod, dry_run=dry_run)
            check_eviction(lab.cluster.store, pod, uid=uid, dry_run=dry_run)
            if not dry_run:
                grace = options.get("gracePeriodSeconds")
                terminate(lab.cluster.store, lab.log, pod, grace_seconds=None if grace is None else float(grace))
                update_statuses(lab.cluster.store)
    except ApiError as error:
        code, detail = error.code, error.message
        raise
    finally:
        lab.log.add(
            Entry(
                event="eviction",
                at=lab.clock.now(),
                namespace=target.namespace,
                name=target.name,
                uid=pod["metadata"]["uid"] if pod else "",
                node=(pod["spec"].get("nodeName") or "") if pod else "",
                code=code,
                verb="POST",
                path=request.url.path,
                user_agent=request.headers.get("user-agent", ""),
                dry_run=dry_run,
                detail=detail,
            )
        )
    await asyncio.sleep(lab.faults.state.eviction_delay_seconds)
    return SUCCESS


def _admit(lab: ServedLab, pod: Obj, *, dry_run: bool) -> None:
    """Raises ApiError when a webhook refuses. Source: k8s.io/apiserver/pkg/admission/plugin/webhook/errors."""
    meta = pod["metadata"]
    for webhook in lab.faults.state.webhooks:
        if not fnmatchcase(f"{meta['namespace']}/{meta['name']}", webhook.pods):
            continue
        if webhook.fails:
            why = f'Internal error occurred: failed calling webhook "{webhook.name}": context deadline exceeded'
            raise ApiError(500, "InternalError", why)
        if webhook.code == 429 and EVACUATES in webhook.message and not dry_run:
            lab.cluster.store.change("pods", pod, _evacuate)
        text = f'admission webhook "{webhook.name}" denied the request: {webhook.message}'
        raise ApiError(webhook.code, REASONS.get(webhook.code, ""), text)


def _evacuate(pod: Obj) -> None:
    pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), EVICTION_IN_PROGRESS: "kubevirt"}
