"""Paged lists: raw bytes, decoded to the needed fields, projected, dropped.

The next page is under way while one is decoded: the continue token stands in the head of a page.

A list is one moment of the cluster only while every page carries the same continue token's resourceVersion. So a list
that breaks half-way is discarded and read again from its first page, a few times; pages of two attempts are never
mixed. The "inconsistent continuation token" that a 410 may offer would do that, and is not used.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import tenacity

from rebalancer.kube.client.background import in_background
from rebalancer.kube.client.client import JSON, RETRIED_STATUSES, AnswerLostError, ApiClient, NotSentError, Resource
from rebalancer.kube.snapshot.quarantine import read_page
from rebalancer.kube.snapshot.records import Page
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder

PAGE_SIZE = 500
MAX_RESTARTS = 3
BREAKING_STATUSES = frozenset({410, *RETRIED_STATUSES})
METADATA_ONLY = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
EVERYWHERE = (None,)
"""The whole cluster instead of namespaces."""
WATCH_METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"

_ITEMS, _NO_ITEMS = b'"items":', b'"items":[]}'
_MOST_HEAD_BYTES = 4096
"""A continue token names one object: its namespace and name have at most 253 bytes each."""
_HEADS = json_decoder(Page[msgspec.Raw])

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Collector(Protocol[T_contra]):
    """Receives the items of one list, page by page."""

    def add(self, items: Sequence[T_contra], /) -> None:
        """Add one page. The items are dropped afterwards."""
        ...


C = TypeVar("C", bound=Collector[Any])


class Gathered(list[T]):
    """A collector that keeps every item: for kinds with few objects."""

    def add(self, items: Sequence[T], /) -> None:
        """Add one page."""
        self.extend(items)


class _BrokenError(Exception):
    """The list broke after its first page."""


def read_list(
    client: ApiClient,
    resource: Resource,
    *,
    item: type[Any],
    collector: Callable[[], C],
    progress: Progress | None = None,
    accept: str = JSON,
    first_page: Callable[[C], None] | None = None,
    namespaces: Sequence[str | None] = EVERYWHERE,
) -> tuple[C, str]:
    """Read the objects of a resource in these namespaces into a collector, a new one for each attempt; returns it with
    the last list's resourceVersion. `first_page` is called with it when its first page is there: what is read from
    then on is newer than the list.

    An object that can't be read comes as a record with its cause in `unread`, and costs the others nothing. Raises
    ConnectError when the server can't be reached or refuses, UnsafeDataError when the list breaks in every attempt or
    can't be read.
    """
    decoder = json_decoder(Page[item])  # type: ignore[valid-type]
    decode = partial(read_page, decoder=decoder, kind=item)

    def attempt() -> tuple[C, str]:
        collected = collector()
        moment = ""
        for at, namespace in enumerate(namespaces):
            moment = _read_once(
                partial(_page_body, client, resource, namespace, accept),
                client,
                resource,
                decode,
                collected,
                progress=progress,
                first_page=None if at else first_page,
            )
        return collected, moment

    attempts = 1 + MAX_RESTARTS
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_BrokenError), stop=tenacity.stop_after_attempt(attempts), reraise=True
    )
    try:
        return retrying(attempt)
    except _BrokenError as error:
        text = f"{client.server}: the list of {resource.plural} broke half-way {attempts} times, last: {error}"
        raise UnsafeDataError(text) from None


def _read_once(
    page_body: Callable[[str], bytes],
    client: ApiClient,
    resource: Resource,
    decode: Callable[[bytes], Page[Any]],
    collected: C,
    *,
    progress: Progress | None,
    first_page: Callable[[C], None] | None,
) -> str:
    token, moment, done = "", "", 0
    following: Future[bytes] | None = None
    while True:
        body = following.result() if following is not None else page_body(token)
        following, ahead = None, token_in_head(body)
        if ahead:
            following = in_background(partial(page_body, ahead), name=f"list {resource.plural}")
        # A page is thousands of small records without cycles: a collection would visit them for nothing.
        with garbage_collector_paused():
            try:
                page = decode(body)
            except UnsafeDataError as error:
                raise UnsafeDataError(f"{client.server}: list {resource.plural}: {error}") from None
            del body
            moment = moment or page.metadata.resource_version
            if page.metadata.resource_version != moment:
                raise _BrokenError(f"a page of {page.metadata.resource_version} in a list of {moment}")
            items = page.items or ()
            collected.add(items)
            if not token and first_page is not None:
                first_page(collected)
            done += len(items)
            token, left = page.metadata.continue_, page.metadata.remaining_item_count
            # Dropped before the collector runs again, and before the next page is read.
            del page, items
        if progress is not None:
            progress.step(resource.plural, done, done + left if left is not None else None if token else done)
        if not token:
            return moment
        if token != ahead:
            following = None  # the head was of another form


def token_in_head(body: bytes) -> str:
    """The continue token of a page, from what comes before its items; empty where they come first."""
    end = body.find(_ITEMS, 0, _MOST_HEAD_BYTES)
    if end < 0:
        return ""
    try:
        return _HEADS.decode(body[:end] + _NO_ITEMS).metadata.continue_
    except (msgspec.DecodeError, RecursionError):
        return ""  # its items may be fields of something else: the whole page decides


def _page_body(client: ApiClient, resource: Resource, namespace: str | None, accept: str, token: str) -> bytes:
    query: dict[str, str | int] = {"limit": PAGE_SIZE}
    if token:
        query["continue"] = token
    try:
        response = client.get(resource.path(namespace=namespace), query=query, accept=accept)
    except (NotSentError, AnswerLostError) as error:
        if token:
            raise _BrokenError(str(error)) from error
        raise
    if response.status == 200:
        return response.data
    refusal = client.error(response, verb="list", resource=resource.rbac_name)
    if token and response.status in BREAKING_STATUSES:
        raise _BrokenError(str(refusal))
    raise refusal


@contextmanager
def garbage_collector_paused() -> Iterator[None]:
    """Pause the garbage collector while many objects without cycles are made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
