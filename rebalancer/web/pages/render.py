"""Rendering of templates. All values are escaped; an undefined name is an error."""

import hashlib
import math
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rebalancer.model.decisions.eviction import COLUMNS, COUNTED
from rebalancer.model.notation import figures
from rebalancer.model.reason import BlockedReason, MissReason, particulars
from rebalancer.model.records.effect import Outcome
from rebalancer.web.pages import charts

MEDIA_TYPES = {
    "style.css": "text/css; charset=utf-8",
    "more.js": "text/javascript; charset=utf-8",
    "alive.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""What is served beside the pages."""

HEAT_STEPS = 10


def render(template: str, **context: Any) -> str:
    """A page of `templates/`."""
    return _environment().get_template(template).render(**context)


@cache
def static(name: str) -> bytes:
    """A file of `static/`; `name` is one of MEDIA_TYPES."""
    return resources.files("rebalancer.web").joinpath("static", name).read_bytes()


@cache
def static_url(name: str) -> str:
    """Its address, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(static(name)).hexdigest()[:12]}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("rebalancer.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        percent=figures.percent,
        whole=whole,
        sortable=sortable,
        short=short,
        beyond=particulars,
        cores=figures.cores,
        millicores=figures.millicores,
        bytes=figures.size,
        seconds=seconds,
        segment=segment,
        heat=heat,
        moment=moment,
        minute=minute,
        duration=figures.age,
    )
    made.globals.update(
        ago=ago,
        link=link,
        eviction_columns=COLUMNS,
        counted=COUNTED,
        static_url=static_url,
        plural=figures.counted,
        meter=charts.meter,
        outcome_texts={each.value: each.sentence for each in Outcome},
        missed={each.value: each.sentence for each in MissReason},
        blocked={each.value: each.sentence for each in BlockedReason},
    )
    return made


def segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it."""
    return quote(name, safe="")


def link(path: str, **parameters: object) -> str:
    """A path with its non-empty parameters."""
    present = {name: value for name, value in parameters.items() if value not in (None, "", False, 0)}
    query = urlencode({name: 1 if value is True else value for name, value in present.items()})
    return f"{path}?{query}" if present else path


def heat(share: float | None) -> str:
    """The class of a share's colour: `h0` to `h9`, `hx` where it isn't known."""
    if share is None or not math.isfinite(share):
        return "hx"
    return f"h{min(max(int(share * HEAT_STEPS), 0), HEAT_STEPS - 1)}"


def whole(share: float) -> str:
    """`71%`: where there is no room for more."""
    return figures.percent(share, 0)


def short(name: str) -> str:
    """A node's name without its domain; an address stays whole."""
    first, _, _ = name.partition(".")
    return name if first.isdecimal() or not first else first


def sortable(value: float) -> float:
    """A column's sort key; 0 where it isn't known (NaN)."""
    return 0.0 if math.isnan(value) else value


def seconds(value: float) -> str:
    """`0.05 s`, `12 s`."""
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def moment(at: float | None, now: float | None = None, *, id: str = "", local: bool = True) -> Markup:
    """A time in UTC: only the clock where it is of the day of `now`. With scripts the browser shows it in its zone, if
    `local`."""
    if at is None:
        return Markup(figures.NOTHING)
    then = datetime.fromtimestamp(at, UTC)
    near = now is not None and then.date() == datetime.fromtimestamp(now, UTC).date()
    shown = f"{then:%H:%M:%S}" if near else f"{then:%d %b %H:%M}"
    return _time(then, shown, form="day" if now is None else "clock", id=id) if local else Markup.escape(shown)


def minute(at: float) -> Markup:
    """`14:05`, as `moment`."""
    then = datetime.fromtimestamp(at, UTC)
    return _time(then, f"{then:%H:%M}", form="minute")


def _time(then: datetime, shown: str, *, form: str, id: str = "") -> Markup:
    """`form` is one of FORMS in more.js."""
    named = Markup(' id="{}"').format(id) if id else ""
    return Markup('<time{} datetime="{}" data-form="{}" title="{} UTC">{}</time>').format(
        named, f"{then:%Y-%m-%dT%H:%M:%SZ}", form, f"{then:%Y-%m-%d %H:%M:%S}", shown
    )


def ago(at: float | None, now: float) -> str:
    """`5m10s ago`, `in 3h`."""
    if at is None:
        return figures.NOTHING
    return f"{figures.age(now - at)} ago" if at <= now else f"in {figures.age(at - now)}"
