"""Which requests may change something: JSON that no page of another origin can make a browser send. And under which
names a dashboard without credentials answers.

A browser adds the credentials of basic authentication to requests that a page of another origin makes it send. Such a
page can send forms and plain text without asking; a browser names its origin in `Origin` and `Sec-Fetch-Site`. A page
whose name was made to resolve to the daemon's address (DNS rebinding) has the daemon's origin, but a foreign name in
`Host`.
Sources: https://fetch.spec.whatwg.org/#cors-safelisted-request-header and https://www.w3.org/TR/fetch-metadata/.
"""

import ipaddress
from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers

_PORTS = {"http": 80, "https": 443}


class Foreign(NamedTuple):
    """Why a request may not change anything."""

    status: int
    sentence: str


def foreign(headers: Headers, *, without_credentials: bool) -> Foreign | None:
    """None when the request may change something, credentials apart.

    `without_credentials`: the server asks for none, so the name in `Host` is always checked; otherwise only where a
    browser sent the request.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return Foreign(415, f"expected content type application/json, got {kind or 'none'}")
    if (problem := _other_origin(headers)) is not None:
        return problem
    sites, origins, host = headers.getlist("sec-fetch-site"), headers.getlist("origin"), headers.get("host", "")
    if (sites or origins or without_credentials) and not _own_name(_name_in(host)):
        return Foreign(403, "expected an IP address, localhost or the name of a Service in Host")
    return None


def foreign_form(headers: Headers) -> Foreign | None:
    """None when a form may change something that its address, a signed link, permits. The name in `Host` is any: a
    page that took the daemon's address has no such link."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return Foreign(415, f"expected content type application/x-www-form-urlencoded, got {kind or 'none'}")
    return _other_origin(headers)


def _other_origin(headers: Headers) -> Foreign | None:
    """Why a page of another origin has sent the request; None where none has."""
    if any(site not in ("same-origin", "none") for site in headers.getlist("sec-fetch-site")):
        return Foreign(403, "requests from a page of another origin are refused (Sec-Fetch-Site)")
    origins = headers.getlist("origin")
    if origins and not _same(origins, headers.get("host", "")):
        return Foreign(403, "requests from a page of another origin are refused (Origin)")
    return None


def foreign_host(headers: Headers, *, hosts: Collection[str]) -> Foreign | None:
    """None when a page without credentials may be read under the name in `Host`: one that no other site can have, or
    one of `hosts`, in lower case."""
    given = headers.getlist("host")
    name = _name_in(given[0]) if len(given) == 1 else ""
    if name in hosts or _own_name(name):
        return None
    sentence = "expected an IP address, localhost, the name of a Service or one of REBALANCER_DASHBOARD_HOSTS in Host"
    return Foreign(403, sentence)


def _same(origins: Sequence[str], host: str) -> bool:
    """Whether there is one origin, and it is where the request was sent to."""
    if len(origins) != 1:
        return False
    try:
        origin = urlsplit(origins[0])
        # by the scheme of the origin: a proxy may have ended TLS
        usual, target = _PORTS.get(origin.scheme), urlsplit(f"{origin.scheme}://{host}")
        there = (target.hostname, target.port or usual)
        return usual is not None and origin.hostname is not None and (origin.hostname, origin.port or usual) == there
    except ValueError:
        return False


def _name_in(host: str) -> str:
    """The name or address in a `Host` header, without its port and in lower case; empty where there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _own_name(name: str) -> bool:
    """Whether no public DNS name can be meant: an IP address, localhost, or a Service of the cluster."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name.endswith((".localhost", ".svc", ".svc.cluster.local")))
    return True
