"""Paged lists: all pages of one list are of one moment, whatever is written meanwhile."""

import base64
import binascii
import itertools
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from rebalancer.lab.objects.errors import bad_request, expired
from rebalancer.lab.objects.kinds import Obj
from rebalancer.model.notation.decoding import json_decoder

_MOST_OPEN_LISTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some items of a list, and the token of the next page."""

    items: list[Obj]
    version: int
    token: str = ""
    remaining: int | None = None


class Pages:
    """Lists in progress. The oldest expires when there are too many."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[int, list[Obj]]] = OrderedDict()
        self._ids = itertools.count(1)

    def first(self, items: list[Obj], *, version: int, limit: int) -> Page:
        """The first page; a `limit` of 0 means everything."""
        if limit <= 0 or len(items) <= limit:
            return Page(items=items, version=version)
        number = next(self._ids)
        self._open[number] = (version, items)
        while len(self._open) > _MOST_OPEN_LISTS:
            self._open.popitem(last=False)
        return self._page(number, 0, limit)

    def next(self, token: str, *, limit: int) -> Page:
        """The page behind a continue token. Raises ApiError 400, 410."""
        try:
            number, start = json_decoder(tuple[int, int]).decode(base64.urlsafe_b64decode(token))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            raise bad_request("continue key is not valid") from None
        if number not in self._open:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter."
            )
        return self._page(number, start, limit)

    def _page(self, number: int, start: int, limit: int) -> Page:
        version, items = self._open[number]
        end = len(items) if limit <= 0 else min(len(items), start + limit)
        token = ""
        if end < len(items):
            token = base64.urlsafe_b64encode(msgspec.json.encode((number, end))).decode()
        return Page(items=items[start:end], version=version, token=token, remaining=len(items) - end or None)
