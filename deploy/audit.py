"""Known vulnerabilities of the locked packages, from a copy of the OSV database: no network is used.

    python deploy/audit.py FOLDER_OR_ZIP

The copy is OSV's export for PyPI: a zip file, or a folder, of one JSON document for each advisory. Each finding is a
line; the exit code is 1 when there are findings, and 4 when the copy can't be read.
"""

import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from locks import LOCK, normal, read_lock
from packaging.version import InvalidVersion, Version
from sbom import version_of


class Finding(NamedTuple):
    """One advisory that concerns a locked version."""

    package: str
    version: str
    advisory: str
    fixed: str
    """The first version without it; empty when there is none."""
    summary: str


def audit(locked: Mapping[str, str], advisories: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """`locked`: name -> version. Withdrawn advisories count no more."""
    found = set()
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", ()):
            package = affected.get("package", {})
            name = normal(package.get("name", ""))
            if package.get("ecosystem") != "PyPI" or name not in locked:
                continue
            hit, fixed = concerns(locked[name], affected)
            if hit:
                found.add(Finding(name, locked[name], advisory["id"], fixed, advisory.get("summary", "")))
    return sorted(found)


def concerns(version: str, affected: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the version is affected, and the first one that isn't.

    Source: the OSV schema: a version is affected when it is listed, or lies in a range from `introduced` to `fixed`
    (exclusive) or `last_affected` (inclusive).
    """
    ours = Version(version)
    for span in affected.get("ranges", ()):
        if span.get("type") != "ECOSYSTEM":
            continue
        since: Version | None = None
        for event in sorted(span.get("events", ()), key=_place):
            (kind, text), *_ = event.items()
            end = _version(text)
            if kind == "introduced":
                since = end
            elif since is not None and since <= ours and (ours < end or (kind == "last_affected" and ours == end)):
                return True, text if kind == "fixed" else ""
            else:
                since = None
        if since is not None and since <= ours:
            return True, ""
    return version in affected.get("versions", ()), ""


def _place(event: Mapping[str, str]) -> tuple[Version, int]:
    (kind, version), *_ = event.items()
    return _version(version), int(kind != "introduced")


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def documents(source: Path) -> Iterator[dict[str, Any]]:
    """Every advisory of a folder or zip file. Raises OSError, ValueError."""
    if source.is_dir():
        yield from (json.loads(path.read_text()) for path in sorted(source.rglob("*.json")))
        return
    with zipfile.ZipFile(source) as archive:
        yield from (json.loads(archive.read(name)) for name in sorted(archive.namelist()) if name.endswith(".json"))


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 4


def main() -> int:
    """See the module."""
    if len(sys.argv) != 2:
        return _fail("usage: python deploy/audit.py FOLDER_OR_ZIP (OSV's export for PyPI)")
    locked = {name: version_of(pinned.text) for name, pinned in read_lock(LOCK.read_text()).items()}
    try:
        advisories = list(documents(Path(sys.argv[1])))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return _fail(f"{sys.argv[1]}: expected advisories of OSV in JSON: {error}")
    findings = audit(locked, advisories)
    for each in findings:
        hint = f", fixed in {each.fixed}" if each.fixed else ""
        sys.stdout.write(f"{each.package} {each.version}: {each.advisory}{hint}: {each.summary}\n")
    sys.stderr.write(f"{len(locked)} packages, {len(advisories)} advisories, {len(findings)} findings\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
