"""Pod templates, each stored once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.template_index import PodTemplateOutline, TemplateIndex
from rebalancer.model.notation.decoding import json_decoder

SCORED_DEFAULT_CPU_MILLICORES = 100.0
SCORED_DEFAULT_MEMORY_BYTES = 200.0 * 1024 * 1024

_ADDED = b"\0"
"""Begins a stored template that was added to a table: no adapter's begins so."""


class PodTemplateTable:
    """Pod templates, interned, and decoded on access.

    `decode` turns one stored blob into a `PodTemplate`; adapters that have objects already pass them through. `outline`
    does the same for the few fields that are read of all templates, where that is quicker than decoding the whole.
    """

    def __init__(
        self,
        blobs: list[bytes],
        decode: Callable[[bytes], PodTemplate],
        outline: Callable[[bytes], PodTemplateOutline] | None = None,
        *,
        extends: "PodTemplateTable | None" = None,
    ) -> None:
        """`extends`: a table of which all templates come first in this one."""
        self._blobs = blobs
        self._index: TemplateIndex = TemplateIndex() if extends is None else extends._index
        self._decode = decode
        self._outline = outline
        self._decoded: dict[int, PodTemplate] = {}

    def __len__(self) -> int:
        return len(self._blobs)

    def __getitem__(self, index: int) -> PodTemplate:
        template = self._decoded.get(index)
        if template is None:
            template = self._decoded[index] = self._decode(self._blobs[index])
        return template

    def only(self, indices: Sequence[int]) -> "PodTemplateTable":
        """A table of the templates at `indices`, in that order."""
        return PodTemplateTable([self._blobs[index] for index in indices], self._decode, self._outline)

    def __reduce__(self) -> tuple[Callable[[list[bytes]], "PodTemplateTable"], tuple[list[bytes]]]:
        # decoded first: what decodes the blobs need not be known to another process
        return _from_json, ([msgspec.json.encode(self._decode(blob)) for blob in self._blobs],)

    def blob(self, index: int) -> bytes:
        """One template as it is stored: the same in every table of a reader."""
        return self._blobs[index]

    def decoded(self, index: int) -> PodTemplate:
        """As by index, but not kept."""
        return self._decoded.get(index) or self._decode(self._blobs[index])

    def outline(self, index: int) -> PodTemplateOutline:
        """Labels and affinity of one template; not kept."""
        if self._outline is not None:
            return self._outline(self._blobs[index])
        return _outline_of(self[index])

    def followed_by(self, templates: Sequence[PodTemplate]) -> "PodTemplateTable":
        """A table of these templates, then of `templates`."""
        added = [_ADDED + msgspec.json.encode(each) for each in templates]
        outline = None if self._outline is None else _OutlineAdded(self._outline)
        return PodTemplateTable([*self._blobs, *added], _DecodeAdded(self._decode), outline, extends=self)

    @property
    def index(self) -> TemplateIndex:
        """All templates by what selects them; made of those that the table before didn't have."""
        known = self._index
        if known.count < len(self):
            known = self._index = known.extended(map(self.outline, range(known.count, len(self))))
        return known


@dataclass(frozen=True, slots=True)
class _DecodeAdded:
    """Decodes the templates of a table and those that were added to it."""

    decode: Callable[[bytes], PodTemplate]

    def __call__(self, blob: bytes) -> PodTemplate:
        return _added(blob) if blob.startswith(_ADDED) else self.decode(blob)


@dataclass(frozen=True, slots=True)
class _OutlineAdded:
    """The same of their outlines."""

    outline: Callable[[bytes], PodTemplateOutline]

    def __call__(self, blob: bytes) -> PodTemplateOutline:
        return _outline_of(_added(blob)) if blob.startswith(_ADDED) else self.outline(blob)


def _added(blob: bytes) -> PodTemplate:
    return json_decoder(PodTemplate).decode(blob[len(_ADDED) :])


def _outline_of(template: PodTemplate) -> PodTemplateOutline:
    affinity = b"" if template.affinity is None else msgspec.json.encode(template.affinity)
    return PodTemplateOutline(template.labels, affinity, bool(template.topology_spread))


def _from_json(blobs: list[bytes]) -> PodTemplateTable:
    return PodTemplateTable(blobs, json_decoder(PodTemplate).decode)
