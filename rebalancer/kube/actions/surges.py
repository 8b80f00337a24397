"""The calls of replacement first: the deletion cost of one pod, and the scale of its Deployment.

Each is sent once, with the resourceVersion that was read as its precondition: a change of others is not overwritten. An
answer that doesn't come, and one that the API server didn't write, leave it open whether the call was carried out.
Sources: pkg/controller/controller_utils.go (`ActivePodsWithRanks`) and pkg/registry/apps/deployment/storage
(`ScaleREST`), v1.36.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from rebalancer.kube.client.client import AnswerLostError, ApiClient, NotSentError, Retries, Timeouts, status_of
from rebalancer.kube.client.permissions import Permission
from rebalancer.kube.snapshot.columns import controller_of
from rebalancer.kube.snapshot.owners import DeploymentStrategy
from rebalancer.kube.snapshot.records import Condition, Empty, OwnerReference, Page, PodSpec, Wire
from rebalancer.kube.snapshot.snapshot import PODS, WORKLOADS
from rebalancer.model.cluster.annotations import DELETION_COST, EVICTION_IN_PROGRESS, LOWEST_COST
from rebalancer.model.cluster.objects import Int32, Int64, LabelSelector
from rebalancer.model.decisions.surges import DeploymentSeen, PodSeen, Surge, SurgeCall, SurgeView
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.reason import Reason, Refusal

DEPLOYMENTS = WORKLOADS["Deployment"]
MERGE_PATCH = "application/merge-patch+json"
TIMEOUTS = Timeouts(connect_seconds=2.0, read_seconds=10.0)
RETRIES = Retries(attempts=2, longest_wait_seconds=1.0, total_seconds=2.0)

SURGE_PERMISSIONS = (
    Permission(verb="get", group=DEPLOYMENTS.group, resource=DEPLOYMENTS.plural),
    Permission(verb="update", group=DEPLOYMENTS.group, resource=DEPLOYMENTS.plural, subresource="scale"),
    Permission(verb="patch", group=PODS.group, resource=PODS.plural),
)
"""Besides those of an eviction."""


class ReplicasField(Wire, frozen=True):
    replicas: Empty | None = msgspec.field(default=None, name="f:replicas")


class ManagedSpec(Wire, frozen=True):
    spec: ReplicasField | None = msgspec.field(default=None, name="f:spec")


class ManagedFields(Wire, frozen=True):
    manager: str = ""
    fields: ManagedSpec | None = msgspec.field(default=None, name="fieldsV1")

    @property
    def has_replicas(self) -> bool:
        """Whether this manager set the replicas."""
        return self.fields is not None and self.fields.spec is not None and self.fields.spec.replicas is not None


class DeploymentMeta(Wire, frozen=True):
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    managed_fields: list[ManagedFields] | None = None


class DeploymentSpec(Wire, frozen=True):
    replicas: Int32 = 1
    paused: bool = False
    strategy: DeploymentStrategy = DeploymentStrategy()
    selector: LabelSelector | None = None


class DeploymentStatus(Wire, frozen=True):
    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    available_replicas: Int32 = 0


class Deployment(Wire, frozen=True):
    """A Deployment as a surge reads it."""

    metadata: DeploymentMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class SurgedPodMeta(Wire, frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class SurgedPodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None


class SurgedPod(Wire, frozen=True):
    """A pod as a surge reads it."""

    metadata: SurgedPodMeta
    spec: PodSpec = PodSpec()
    status: SurgedPodStatus = SurgedPodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    def seen(self) -> PodSeen:
        """What the steps read."""
        annotations = self.metadata.annotations or {}
        conditions = self.status.conditions or ()
        return PodSeen(
            name=self.metadata.name,
            version=self.metadata.resource_version,
            node=self.spec.node_name,
            ready=any((each.type, each.status) == ("Ready", "True") for each in conditions),
            terminating=self.metadata.deletion_timestamp is not None,
            cost=annotations.get(DELETION_COST),
            in_progress=EVICTION_IN_PROGRESS in annotations,
        )


class Kind(Wire, frozen=True):
    kind: str = ""


class KubeSurges:
    """Implements `model.decisions.surges.SurgeCalls`. `term` as in `KubeEvictor`."""

    def __init__(self, *, client: ApiClient, term: Callable[[], int | None] = lambda: None) -> None:
        self._client = client
        self._term = term
        self.manager = client.user_agent.partition("/")[0]

    def look(self, surge: Surge) -> SurgeView:
        """See `SurgeCalls`."""
        read = partial(self._client.read, verb="get", timeouts=TIMEOUTS, retries=RETRIES)
        deployment = read(_deployment_path(surge), Deployment, resource=DEPLOYMENTS.rbac_name)
        if deployment is None or deployment.metadata.uid != surge.deployment_uid:
            deployment = None
        pod = read(_pod_path(surge), SurgedPod, resource=PODS.rbac_name)
        if pod is None or pod.metadata.uid != surge.pod_uid or pod.finished:
            return SurgeView(_seen(deployment), None, ())
        others = () if deployment is None else self._siblings(surge, pod, deployment)
        return SurgeView(_seen(deployment), pod.seen(), others)

    def _siblings(self, surge: Surge, pod: SurgedPod, deployment: Deployment) -> tuple[PodSeen, ...]:
        owner = controller_of(pod.metadata.owner_references)
        path, selector = PODS.path(namespace=surge.namespace), selector_text(deployment.spec.selector)
        response = self._client.get(path, query={"labelSelector": selector}, timeouts=TIMEOUTS, retries=RETRIES)
        if response.status != 200:
            raise self._client.error(response, verb="list", resource=PODS.rbac_name)
        items = self._client.decode(response.data, Page[SurgedPod], what="list pods").items or ()
        return tuple(
            each.seen()
            for each in items
            if each.metadata.uid != surge.pod_uid
            and not each.finished
            and owner is not None
            and (of := controller_of(each.metadata.owner_references)) is not None
            and of.uid == owner.uid
        )

    def send(
        self,
        call: SurgeCall,
        surge: Surge,
        view: SurgeView,
        *,
        may: Callable[[], bool] = lambda: True,
        dry_run: bool = False,
    ) -> Refusal | None:
        """See `SurgeCalls`."""
        send = partial(self._send, may=may, dry_run=dry_run)
        match call:
            case SurgeCall.MARK | SurgeCall.UNMARK:
                assert view.pod is not None
                cost = LOWEST_COST if call is SurgeCall.MARK else None
                meta = {"uid": surge.pod_uid, "resourceVersion": view.pod.version, "annotations": {DELETION_COST: cost}}
                return send("PATCH", _pod_path(surge), {"metadata": meta}, MERGE_PATCH)
        assert view.deployment is not None
        replicas = surge.replicas + (call is SurgeCall.GROW)
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": surge.deployment,
                "namespace": surge.namespace,
                "uid": surge.deployment_uid,
                "resourceVersion": view.deployment.version,
            },
            "spec": {"replicas": replicas},
        }
        return send("PUT", f"{_deployment_path(surge)}/scale", body, "application/json")

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        kind: str,
        *,
        may: Callable[[], bool],
        dry_run: bool,
    ) -> Refusal | None:
        term, agent = self._term(), self._client.user_agent

        def limits() -> Timeouts:
            if not may():
                raise NotSentError("not sent: the lease was lost, or the credentials took too long to read")
            return TIMEOUTS

        try:
            response = self._client.send(
                method,
                path,
                msgspec.json.encode(body),
                query={"dryRun": "All"} if dry_run else None,
                content_type=kind,
                user_agent=agent if term is None else f"{agent} term/{term}",
                timeouts=limits,
            )
        except NotSentError as error:
            return Refusal.of(Reason.SERVER_ERROR, str(error))
        if response.status == 200 and _kind_of(response.data) in ("Pod", "Scale"):
            return None
        status = status_of(response.data)
        message = f"HTTP {response.status}: {' '.join(status.message.split())}"
        if not 400 <= response.status < 500 or status.kind != "Status":
            raise AnswerLostError(f"{self._client.server}: {method} {path}: {message}")
        codes = {404: Reason.SERVER_GONE, 409: Reason.SERVER_UID_CHANGED, 403: Reason.SURGE_FORBIDDEN}
        return Refusal.of(codes.get(response.status, Reason.SERVER_ERROR), message)


def _kind_of(body: bytes) -> str:
    """Of an answer; empty for one that the API server didn't write."""
    try:
        return json_decoder(Kind).decode(body).kind
    except msgspec.DecodeError:
        return ""


def _deployment_path(surge: Surge) -> str:
    return DEPLOYMENTS.path(namespace=surge.namespace, name=surge.deployment)


def _pod_path(surge: Surge) -> str:
    return PODS.path(namespace=surge.namespace, name=surge.pod)


def _seen(deployment: Deployment | None) -> DeploymentSeen | None:
    if deployment is None:
        return None
    meta, spec, status = deployment.metadata, deployment.spec, deployment.status
    return DeploymentSeen(
        uid=meta.uid,
        version=meta.resource_version,
        replicas=spec.replicas,
        recreates=spec.strategy.type == "Recreate",
        paused=spec.paused,
        up_to_date=status.observed_generation >= meta.generation,
        pods=status.replicas,
        updated=status.updated_replicas,
        available=status.available_replicas,
        managers=tuple(sorted({each.manager for each in meta.managed_fields or () if each.has_replicas})),
    )


def selector_text(selector: LabelSelector | None) -> str:
    """The selector as the query parameter `labelSelector`. Raises UnsafeDataError for one without a term."""
    terms = [f"{key}={value}" for key, value in (selector.match_labels if selector else {}).items()]
    for each in selector.match_expressions if selector else ():
        values = f"({','.join(each.values)})"
        forms = {"In": f"{each.key} in {values}", "NotIn": f"{each.key} notin {values}", "Exists": each.key}
        terms.append(forms.get(each.operator, f"!{each.key}"))
    if not terms:
        raise UnsafeDataError("its Deployment selects no pods")
    return ",".join(terms)
