"""SVG elements as text."""

from collections.abc import Sequence
from html import escape

from markupsafe import Markup


def titles(name: str, title: str, description: str) -> list[Markup]:
    """Title and description of a picture for screen readers; `name` is unique on its page."""
    return [tag("title", title, id=f"{name}-title"), tag("desc", description, id=f"{name}-desc")]


def picture(name: str, width: float, height: float, css: str, parts: Sequence[Markup]) -> Markup:
    """An `svg` with `parts` in it, the first two of them made by `titles`."""
    return tag(
        "svg",
        *parts,
        class_=css,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def tag(element: str, *inside: str, **attributes: str | float) -> Markup:
    """One element; plain text in it and in its attributes is escaped."""
    named = "".join(f' {_attribute(name)}="{_value(value)}"' for name, value in attributes.items())
    body = "".join(each if isinstance(each, Markup) else escape(each) for each in inside)
    return Markup(f"<{element}{named}>{body}</{element}>") if body else Markup(f"<{element}{named}/>")


def _attribute(name: str) -> str:
    return name if name in ("viewBox", "preserveAspectRatio") else name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
