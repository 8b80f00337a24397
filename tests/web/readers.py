"""A page as a browser would read it: elements, links, what isn't allowed in it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it, with single spaces."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for each in self.children:
            if isinstance(each, str):
                yield each
            else:
                yield from each._texts()

    def all(self, name: str, **attributes: str) -> list["Element"]:
        """Elements of this name within it that have these attributes (`class_` among others)."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [each for each in self.walk() if each.name == name and each._has(wanted)]

    def one(self, name: str, **attributes: str) -> "Element":
        """The only one."""
        found = self.all(name, **attributes)
        assert len(found) == 1, f"{len(found)} of {name} {attributes}"
        return found[0]

    def walk(self) -> Iterator["Element"]:
        for each in self.children:
            if isinstance(each, Element):
                yield each
                yield from each.walk()

    def _has(self, wanted: dict[str, str]) -> bool:
        return all(
            value in self.attributes.get(key, "").split() if key == "class" else self.attributes.get(key) == value
            for key, value in wanted.items()
        )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {key: value or "" for key, value in attrs})
        self._open[-1].children.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in {each.name for each in self._open}:
            while self._open.pop().name != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read_page(text: str | bytes) -> Element:
    """The document."""
    reader = _Reader()
    reader.feed(text if isinstance(text, str) else text.decode())
    reader.close()
    return reader.root


def links(page: Element) -> set[str]:
    """Where a person can go from here."""
    return {each.attributes["href"] for each in page.all("a") if "href" in each.attributes}


def faults(page: Element) -> list[str]:
    """What a page of ours must not have: scripts or style in it, things from elsewhere, tables and pictures without a
    name, ids that stand there twice."""
    found = []
    ids = [each.attributes["id"] for each in page.walk() if "id" in each.attributes]
    found += [f"id {each} twice" for each in sorted({each for each in ids if ids.count(each) > 1})]
    for each in page.walk():
        found += [f"{key} of {each.name}" for key in each.attributes if key == "style" or key.startswith("on")]
        if each.name == "script" and ("src" not in each.attributes or each.text):
            found.append("a script in the page")
        for key in ("href", "src", "action"):
            if not each.attributes.get(key, "/").startswith(("/", "#")):
                found.append(f"{key} {each.attributes[key]}")
        if each.name == "table" and not each.all("caption"):
            found.append("a table without caption")
        if each.name == "svg" and each.attributes.get("role") == "img":
            named = each.attributes.get("aria-labelledby", "").split()
            if not named or not all(name in ids for name in named):
                found.append("a picture without a name")
        if each.name == "form" and each.attributes.get("method", "get").lower() != "get":
            found.append("a form that changes something")
        for key in ("aria-labelledby", "for"):
            found += [f"{key} {name}" for name in each.attributes.get(key, "").split() if name not in ids]
    return found
