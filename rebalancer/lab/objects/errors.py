"""API errors, as the `Status` object of a Kubernetes API server."""

from collections.abc import Mapping
from typing import Any

from rebalancer.lab.objects.kinds import Kind


class ApiError(Exception):
    """A response other than success."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def status(self) -> dict[str, Any]:
        """The body."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body


def _named(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    """404."""
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=_named(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    """409 for a create."""
    return ApiError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details=_named(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    """409 for a stale resourceVersion or a precondition."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_named(kind, name))


def forbidden(kind: Kind, name: str, *, verb: str, resource: str) -> ApiError:
    """403: not granted by RBAC."""
    where = f'User "lab" cannot {verb} resource "{resource}" in API group "{kind.group}"'
    message = f'{kind.qualified} "{name}" is forbidden: {where}' if name else f"{kind.qualified} is forbidden: {where}"
    return ApiError(403, "Forbidden", message, details=_named(kind, name))


def expired(message: str) -> ApiError:
    """410: the continue token or the watch's start is too old."""
    return ApiError(410, "Expired", message)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    """404 for a path that no API serves."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")
