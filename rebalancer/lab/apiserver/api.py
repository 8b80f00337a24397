"""The Kubernetes API: from a path and a verb to the store."""

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rebalancer.lab.apiserver import access, discovery, logs, metrics_server, openapi, pod_events, protobuf
from rebalancer.lab.apiserver.eviction import evict
from rebalancer.lab.apiserver.pages import Pages
from rebalancer.lab.apiserver.patching import APPLY, apply_patch
from rebalancer.lab.apiserver.scale import managed, scale_of, scaled
from rebalancer.lab.apiserver.selectors import predicate
from rebalancer.lab.apiserver.tables import table, wanted_version
from rebalancer.lab.apiserver.watch import watch_response
from rebalancer.lab.controlplane.cron_jobs import next_time
from rebalancer.lab.controlplane.owned import terminate
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.disruption import update_statuses
from rebalancer.lab.objects.errors import ApiError, bad_request, conflict, expired, no_such_path
from rebalancer.lab.objects.kinds import KINDS, METRICS_GROUP, METRICS_VERSION, Kind, Obj, by_path
from rebalancer.lab.objects.taints import check_taints, set_cordon
from rebalancer.lab.scenarios.build import complete_pod
from rebalancer.lab.serving import ServedLab, json_response

_NEEDS_CONTAINERS = ("exec", "attach", "portforward", "proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a path. An empty `name` means the collection."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""


def parse_target(parts: list[str]) -> Target | None:
    """The target of a split path below `/api` or `/apis`, None when the lab doesn't serve it."""
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        if len(parts) < 4:
            return None
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = by_path(group, version, rest[0])
    if kind is None or len(rest) > 3:
        return None
    return Target(kind=kind, namespace=namespace, name="".join(rest[1:2]), subresource="".join(rest[2:3]))


class KubernetesApi:
    """Answers every path under `/version`, `/api` and `/apis`."""

    def __init__(self, lab: ServedLab) -> None:
        self._lab = lab
        self._store = lab.cluster.store
        self._pages = Pages()

    async def __call__(self, request: Request) -> Response:
        """One request. Errors come back as a `Status`."""
        body = await request.body()
        code = 0
        try:
            self._authenticate(request)
            response = await self._answer(request, body)
            code = response.status_code
            return response
        except ApiError as error:
            code = error.code
            return json_response(error.status(), error.code, error.headers)
        finally:
            if request.method not in ("GET", "HEAD"):
                self._lab.log.add(
                    Entry(
                        event="request",
                        at=self._lab.clock.now(),
                        code=code,
                        verb=request.method,
                        path=request.url.path,
                        user_agent=request.headers.get("user-agent", ""),
                        dry_run=_is_dry_run(request, {}),
                    )
                )

    def _authenticate(self, request: Request) -> None:
        token = self._lab.token
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _answer(self, request: Request, body: bytes) -> Response:
        parts = [part for part in request.url.path.split("/") if part]
        _check_accept(request.headers.get("accept", ""))
        found = await asyncio.to_thread(self._discover, parts)
        if found is not None:
            return json_response(found)
        if parts[:3] == ["apis", METRICS_GROUP, METRICS_VERSION]:
            return json_response(metrics_server.answer(self._lab, parts[3:], request.query_params))
        if (review := access.reviewed(parts)) is not None and request.method == "POST":
            return json_response(access.review(self._lab, review, _decode(request, body)), 201)
        target = parse_target(parts) if parts[0] in ("api", "apis") and len(parts) > 2 else None
        if target is None:
            raise no_such_path()
        watched = request.query_params.get("watch") in ("1", "true")
        access.check(self._lab, target, method=request.method, watched=watched)
        if target.subresource in _NEEDS_CONTAINERS:
            raise bad_request(f"the practice cluster runs no containers, so it has no {target.subresource}")
        if target.subresource == "log" and request.method == "GET":
            return PlainTextResponse(logs.text(self._lab, target.namespace, target.name, request.query_params))
        if request.method == "GET":
            return self._read(request, target)
        if target.subresource == "eviction" and request.method == "POST":
            return json_response(await evict(self._lab, target, request, _decode(request, body)), 201)
        with self._lab.cluster.written_by(request.headers.get("user-agent", "")):
            return self._write(request, target, body)

    def _discover(self, parts: list[str]) -> Obj | None:
        match parts:
            case ["version"]:
                return discovery.VERSION
            case ["api"]:
                return discovery.api_versions(self._lab.url.removeprefix("http://"))
            case ["apis"]:
                return discovery.api_groups()
            case ["api", version]:
                return discovery.resources("", version)
            case ["apis", group]:
                return discovery.api_group(group)
            case ["apis", group, version]:
                return discovery.resources(group, version)
            case ["openapi", "v3"]:
                return openapi.root([("", "v1"), *discovery.group_versions()])
            case ["openapi", "v3", "api", version]:
                return openapi.document("", version)
            case ["openapi", "v3", "apis", group, version]:
                return openapi.document(group, version)
        return None

    # -- reading ----------------------------------------------------------------------------------------------------

    def _read(self, request: Request, target: Target) -> Response:
        query = request.query_params
        table_version = wanted_version(request.headers.get("accept", ""))
        kind = target.kind
        if not target.name:
            if query.get("watch") in ("1", "true"):
                return watch_response(self._lab, request, kind, target.namespace, table_version)
            return json_response(self._list(request, target, table_version))
        obj = self._store.get(kind.plural, target.namespace, target.name)
        if target.subresource == "scale":
            return json_response(scale_of(obj))
        if table_version:
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            now = self._lab.clock.now()
            return json_response(table(kind.plural, [obj], version=table_version, now=now, list_meta=meta))
        return json_response(obj)

    def _list(self, request: Request, target: Target, table_version: str | None) -> Obj:
        query, kind = request.query_params, target.kind
        try:
            limit = int(query.get("limit") or 0)
        except ValueError:
            raise bad_request("limit must be a number") from None
        token = query.get("continue", "")
        if token:
            if self._lab.faults.state.expire_continue:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            page = self._pages.next(token, limit=limit)
        else:
            shows = predicate(
                kind.plural,
                label_selector=query.get("labelSelector", ""),
                field_selector=query.get("fieldSelector", ""),
                namespace=target.namespace,
            )
            with self._store.lock:
                found = self._store.sorted(kind.plural)
                found += pod_events.of_pods(self._lab) if kind.plural == "events" else []
                items = [obj for obj in found if shows(obj)]
                version = self._store.version
            # As the real one: a list from the cache (resourceVersion=0) is never cut.
            page = self._pages.first(items, version=version, limit=0 if query.get("resourceVersion") == "0" else limit)
        meta: Obj = {"resourceVersion": str(page.version)}
        if page.token:
            meta["continue"] = page.token
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = page.remaining
        if table_version:
            now = self._lab.clock.now()
            return table(kind.plural, page.items, version=table_version, now=now, list_meta=meta)
        # As the real one: items of a list have no kind and apiVersion.
        items = [{key: obj[key] for key in obj if key not in ("kind", "apiVersion")} for obj in page.items]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    # -- writing ----------------------------------------------------------------------------------------------------

    def _write(self, request: Request, target: Target, body: bytes) -> Response:
        match request.method:
            case "POST" if not target.name:
                return json_response(self._create(request, target, _decode(request, body)), 201)
            case "PUT" if target.name:
                return json_response(self._update(request, target, _decode(request, body)))
            case "PATCH" if target.name:
                return json_response(self._patch(request, target, body))
            case "DELETE":
                options = _decode(request, body) if body else {}
                if target.name:
                    return json_response(self._delete(request, target, options))
                return json_response(self._delete_collection(request, target, options))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _create(self, request: Request, target: Target, obj: Obj) -> Obj:
        meta = obj.setdefault("metadata", {})
        if target.kind.namespaced:
            if meta.setdefault("namespace", target.namespace) != target.namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            self._store.get("namespaces", "", target.namespace)
        if not meta.get("name") and not meta.get("generateName"):
            raise ApiError(422, "Invalid", f"{target.kind.kind} is invalid: metadata.name: Required value")
        if target.kind.group == "events.k8s.io":
            obj = _core_event(obj)
        self._check_fields(request, target, obj)
        _complete(target.kind, obj)
        if _is_dry_run(request, {}):
            return obj
        created = self._store.create(target.kind.plural, obj)
        self._settle(target.kind)
        return created

    def _update(self, request: Request, target: Target, obj: Obj) -> Obj:
        kind = target.kind
        if obj.get("metadata", {}).get("name") != target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        obj["metadata"].setdefault("namespace", target.namespace)
        before = self._store.get(kind.plural, target.namespace, target.name)
        if target.subresource == "scale":
            obj = scaled(before, obj)
        elif target.subresource == "status":
            obj = {**before, "metadata": {**before["metadata"], **obj["metadata"]}, "status": obj.get("status", {})}
        self._check_fields(request, target, obj)
        _check(kind, obj)
        if kind.plural == "nodes":
            obj = {**obj, "spec": dict(obj.get("spec") or {})}
            check_taints(obj)
            set_cordon(obj, on=bool(obj["spec"].get("unschedulable")), now=self._store.clock.now())
        if _is_dry_run(request, {}):
            return scale_of(obj) if target.subresource == "scale" else obj
        obj = managed(obj, before, by=request.headers.get("user-agent", ""), now=self._store.clock.now())
        updated = self._store.update(kind.plural, obj)
        self._settle(kind)
        return scale_of(updated) if target.subresource == "scale" else updated

    def _check_fields(self, request: Request, target: Target, obj: Obj) -> None:
        if request.query_params.get("fieldValidation") == "Strict" and not target.subresource:
            openapi.check_fields(target.kind, obj)

    def _patch(self, request: Request, target: Target, body: bytes) -> Obj:
        plural, content_type = target.kind.plural, request.headers.get("content-type", "")
        patch = _decode(request, body)
        if content_type == APPLY and self._store.find(plural, target.namespace, target.name) is None:
            return self._create(request, target, patch)
        before = self._store.get(plural, target.namespace, target.name)
        seen = scale_of(before) if target.subresource == "scale" else before
        after = apply_patch(seen, patch, content_type)
        return self._update(request, target, after)

    def _delete(self, request: Request, target: Target, options: Obj) -> Obj:
        kind = target.kind
        obj = self._store.get(kind.plural, target.namespace, target.name)
        _check_preconditions(kind, obj, options)
        if _is_dry_run(request, options):
            return obj
        grace = options.get("gracePeriodSeconds", request.query_params.get("gracePeriodSeconds"))
        if kind.plural == "pods" and str(grace) != "0":
            return terminate(self._store, self._lab.log, obj, grace_seconds=None if grace is None else float(grace))
        policy = options.get("propagationPolicy", request.query_params.get("propagationPolicy"))
        removed = self._store.remove(kind.plural, target.namespace, target.name)
        if kind.plural == "namespaces":
            self._empty(target.name)
        elif policy != "Orphan":
            self._collect(obj["metadata"]["uid"])
        self._settle(kind)
        if kind.plural == "pods":
            return removed
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": obj["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _delete_collection(self, request: Request, target: Target, options: Obj) -> Obj:
        query, kind = request.query_params, target.kind
        shows = predicate(
            kind.plural,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            namespace=target.namespace,
        )
        for obj in [obj for obj in self._store.sorted(kind.plural) if shows(obj)]:
            meta = obj["metadata"]
            each = Target(kind=kind, namespace=meta.get("namespace", ""), name=meta["name"])
            self._delete(request, each, options)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _collect(self, owner_uid: str) -> None:
        """Background garbage collection: objects owned by the removed one are removed too."""
        for plural in ("replicasets", "jobs", "pods"):
            for obj in self._store.sorted(plural):
                meta = obj["metadata"]
                if not any(each["uid"] == owner_uid for each in meta.get("ownerReferences") or ()):
                    continue
                if plural == "pods":
                    terminate(self._store, self._lab.log, obj)
                else:
                    self._store.remove(plural, meta["namespace"], meta["name"])
                    self._collect(meta["uid"])

    def _empty(self, namespace: str) -> None:
        """Remove the contents of a removed namespace; its pods terminate."""
        for plural in dict.fromkeys(kind.plural for kind in KINDS if kind.namespaced):
            for obj in self._store.sorted(plural):
                meta = obj["metadata"]
                if meta["namespace"] != namespace:
                    continue
                if plural == "pods":
                    terminate(self._store, self._lab.log, obj)
                else:
                    self._store.remove(plural, namespace, meta["name"])

    def _settle(self, kind: Kind) -> None:
        if kind.plural in ("pods", "poddisruptionbudgets"):
            update_statuses(self._store)


def _core_event(event: Obj) -> Obj:
    """An events.k8s.io/v1 Event as the core group shows it (pkg/apis/events/v1/conversion.go)."""
    names = {"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent"}
    return {names.get(key, key): value for key, value in event.items()}


def _check(kind: Kind, obj: Obj) -> None:
    """The few fields that the lab's own controllers need. Raises ApiError 422."""
    needed: dict[str, tuple[str, ...]] = {
        "poddisruptionbudgets": ("selector",),
        "pods": ("containers",),
        "jobs": ("template",),
    }
    if kind.group == "apps":
        needed[kind.plural] = ("selector", "template")
    for field in needed.get(kind.plural, ()):
        if not isinstance((obj.get("spec") or {}).get(field), dict | list):
            raise ApiError(422, "Invalid", f"{kind.kind} is invalid: spec.{field}: Required value")


def _complete(kind: Kind, obj: Obj) -> None:
    """Validate a new object and apply the API server's defaulting. Raises ApiError 422."""
    _check(kind, obj)
    if "template" in (obj.get("spec") or {}):
        obj["spec"]["template"].setdefault("metadata", {})
        obj["spec"]["template"].setdefault("spec", {})
    match kind.plural:
        case "pods":
            complete_pod(obj)
        case "namespaces":
            obj["status"] = {"phase": "Active"}
        case "nodes":
            obj.setdefault("spec", {})
            obj.setdefault("status", {}).setdefault("allocatable", {})
            check_taints(obj)
        case "cronjobs":
            try:
                next_time(obj["spec"]["schedule"], 0.0)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise ApiError(422, "Invalid", f"CronJob is invalid: spec.schedule: {error}") from None
        case "secrets":
            texts = obj.pop("stringData", None) or {}
            added = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
            obj["data"] = {**(obj.get("data") or {}), **added}
            obj.setdefault("type", "Opaque")
        case "deployments" | "replicasets" | "statefulsets":
            obj["spec"].setdefault("replicas", 1)


def _decode(request: Request, body: bytes) -> Any:
    content_type = request.headers.get("content-type", "application/json")
    if content_type.partition(";")[0] == protobuf.MEDIA_TYPE:
        return protobuf.decode(body)
    if "json" not in content_type and "yaml" not in content_type:
        raise ApiError(415, "UnsupportedMediaType", f"the lab reads JSON, YAML and protobuf, not {content_type}")
    try:
        decoded = yaml.safe_load(body) if "yaml" in content_type else msgspec.json.decode(body)  # noqa: TID251 - no type
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"the body can't be decoded: {error}") from None
    if request.method != "PATCH" and not isinstance(decoded, dict):
        raise bad_request("the body must be an object")
    return decoded


def _check_accept(accept: str) -> None:
    """Raises ApiError 406 for a client that takes no JSON."""
    if accept and not any(each in accept for each in ("json", "*/*", "application/*", "text/plain")):
        raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def _is_dry_run(request: Request, options: Obj) -> bool:
    return request.query_params.get("dryRun") == "All" or "All" in (options.get("dryRun") or ())


def _check_preconditions(kind: Kind, obj: Obj, options: Obj) -> None:
    wanted, have = options.get("preconditions") or {}, obj["metadata"]
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) not in (None, have[field]):
            why = f"Precondition failed: {field} in precondition: {wanted[field]}, in object meta: {have[field]}"
            raise conflict(kind, have["name"], why)
