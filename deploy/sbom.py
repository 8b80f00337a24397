"""The software bill of materials of the image's Python packages, as CycloneDX 1.6 JSON on stdout.

Everything is read from `requirements-runtime.lock`: nothing is resolved, and no network is used. The same tree gives
the same bytes.
`python deploy/sbom.py > rebalancer.cdx.json`
"""

import json
import re
import sys
import tomllib
import uuid
from typing import Any

from locks import ROOT, RUNTIME, read_lock


def bill() -> dict[str, Any]:
    """The document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = RUNTIME.read_text()
    name, version = project["name"], project["version"]
    root = {"type": "application", "bom-ref": purl(name, version), "name": name, "version": version}
    packages = [component(each, pinned.text) for each, pinned in read_lock(lock).items()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # of the lock, so that the same tree gives the same document
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, lock)}",
        "version": 1,
        "metadata": {"component": {**root, "licenses": [{"license": {"id": project["license"]}}]}},
        "components": packages,
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": [each["bom-ref"] for each in packages]}],
    }


def component(name: str, text: str) -> dict[str, Any]:
    """One package of a lock file; the hashes are those of the files that may be installed."""
    version = version_of(text)
    hashes = [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", text)]
    return {
        "type": "library",
        "bom-ref": purl(name, version),
        "name": name,
        "version": version,
        "purl": purl(name, version),
        # a component's own hashes are of one file; an index has a file for each platform
        "externalReferences": [{"type": "distribution", "url": f"pkg:pypi/{name}", "hashes": hashes}],
    }


def version_of(text: str) -> str:
    """Of a package in a lock file. Raises ValueError for one that isn't pinned."""
    found = re.match(r"[^=\s]+==(\S+)", text)
    if found is None:
        raise ValueError(f"not pinned: {text.splitlines()[0]}")
    return found[1]


def purl(name: str, version: str) -> str:
    """The package URL."""
    return f"pkg:pypi/{name}@{version}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(), indent=2) + "\n")
