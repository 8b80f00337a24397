"""Each dependency probed on its own: what was found, or the exact cause and the fix."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from rebalancer.daemon.settings import Settings
from rebalancer.daemon.wiring import Doctor
from rebalancer.model.errors import RebalancerError
from rebalancer.policy import RebalancerPolicy

DATABASE_FIX = "see --database and REBALANCER_DATABASE; an older schema needs `rebalancer db upgrade`"
SERVER_FIX = "see --kubeconfig and --context; `kubectl get --raw /readyz` asks the same server"
PROMETHEUS_FIX = "see usage.prometheus in the policy: url, bearerTokenFile or basicAuth, caFile; and network policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the diagnosis."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    exit_code: int = 0
    """What a command would have ended with, when not ok."""


def diagnose(policy: RebalancerPolicy, settings: Settings) -> Iterator[Check]:
    """Probe the database, the API server, our rights and Prometheus; one broken part never hides another."""
    with closing(Doctor(policy=policy, settings=settings)) as doctor:
        yield _attempt("database", lambda: _database(doctor), fix=DATABASE_FIX)
        server = _attempt(
            "api server", lambda: f"{doctor.server}: Kubernetes {doctor.server_version()}", fix=SERVER_FIX
        )
        yield server
        if server.ok:
            yield from _permissions(doctor)
        if policy.usage.source == "Prometheus":
            yield from _prometheus(doctor)


def _attempt(name: str, probe: Callable[[], str], fix: str = "") -> Check:
    try:
        return Check(name=name, ok=True, detail=probe())
    except RebalancerError as error:
        return Check(name=name, ok=False, detail=str(error), fix=fix, exit_code=error.exit_code)


def _database(doctor: Doctor) -> str:
    found = doctor.database()
    if found is None:
        return "not there yet: the first run creates it"
    return f"{found.url_shown}: revision {found.revision}"


def _permissions(doctor: Doctor) -> Iterator[Check]:
    try:
        missing = [str(permission) for permission in doctor.missing_permissions()]
    except RebalancerError as error:
        yield Check(name="permissions", ok=False, detail=str(error), exit_code=error.exit_code)
        return
    if missing:
        yield Check(
            name="permissions",
            ok=False,
            detail=f"not allowed: {', '.join(missing)}",
            fix="grant these verbs to our account in a ClusterRole (the Lease's in a Role)",
            exit_code=5,
        )
    else:
        yield Check(name="permissions", ok=True, detail="everything that a run needs is allowed")


def _prometheus(doctor: Doctor) -> Iterator[Check]:
    try:
        found = doctor.prometheus()
    except RebalancerError as error:
        yield Check(name="prometheus", ok=False, detail=str(error), fix=PROMETHEUS_FIX, exit_code=error.exit_code)
        return
    yield Check(name="prometheus", ok=True, detail=f"{found.url}: version {found.version or 'not told'}")
    for metric in found.metrics:
        age = "" if metric.newest_age_seconds is None else f", newest sample {metric.newest_age_seconds:.0f} s old"
        detail = metric.error or (f"{metric.series} series{age}" if metric.series else "no series")
        ok = bool(metric.series) or not metric.needed
        yield Check(
            name=metric.name,
            ok=ok,
            detail=detail if metric.needed or metric.series else f"{detail} (only helps)",
            fix="" if ok else metric.fix,
            exit_code=0 if ok else 4,
        )
