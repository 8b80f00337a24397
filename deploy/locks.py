"""Write the image's lock files from `requirements.lock`: what the program needs at run time, and what builds its wheel.

Nothing is resolved anew: versions and hashes are those of `requirements.lock`, and its `# via` lines tell who needs
what.
`python deploy/locks.py` writes, with `--check` it ends with 1 where a file is not what it would write.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
RUNTIME, BUILD = ROOT / "deploy" / "requirements-runtime.lock", ROOT / "deploy" / "requirements-build.lock"

_HEAD = "# Made from requirements.lock by `python deploy/locks.py`. Don't edit.\n"


class Pinned(NamedTuple):
    """One package of the lock."""

    text: str
    """Its lines: version, hashes, who needs it."""
    needed_by: frozenset[str]
    """Names of packages; the project itself is none of them."""


def read_lock(text: str) -> dict[str, Pinned]:
    """Name -> package, in the order of the file."""
    found: dict[str, Pinned] = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        name = re.split(r"[=\[ ]", block, maxsplit=1)[0]
        comments = re.findall(r"^ +#(?: +via)? +(\S+)", block, flags=re.MULTILINE)
        found[normal(name)] = Pinned(text=block, needed_by=frozenset(normal(each) for each in comments))
    return found


def closure(lock: Mapping[str, Pinned], roots: Iterable[str]) -> list[str]:
    """The roots and all that they need, in the order of the lock. Raises KeyError for a root that isn't in it."""
    wanted = {normal(root) for root in roots}
    if missing := wanted - lock.keys():
        raise KeyError(f"not in requirements.lock: {', '.join(sorted(missing))}: run `make lock`")
    grown = -1
    while grown != len(wanted):
        grown = len(wanted)
        wanted |= {name for name, pinned in lock.items() if pinned.needed_by & wanted}
    return [name for name in lock if name in wanted]


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted_files() -> dict[Path, str]:
    """Path -> what it should hold."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = read_lock(LOCK.read_text())
    roots = {
        RUNTIME: project["project"]["dependencies"],
        BUILD: project["build-system"]["requires"],
    }
    return {
        path: _HEAD + "".join(lock[name].text for name in closure(lock, map(_name, requirements)))
        for path, requirements in roots.items()
    }


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def main() -> None:
    """See the module."""
    files = wanted_files()
    if sys.argv[1:] != ["--check"]:
        for path, text in files.items():
            path.write_text(text)
        return
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale:
        sys.exit(f"not up to date: {', '.join(stale)}: run `python deploy/locks.py`")


if __name__ == "__main__":
    main()
