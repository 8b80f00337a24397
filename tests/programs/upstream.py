"""Lists what a release of Kubernetes adds to pods and nodes and this repository doesn't name.

    python -m tests.programs.upstream NEW OLD

Both are checkouts of kubernetes/kubernetes. Fields come from their OpenAPI document, keys of annotations, labels and
taints from the constants of the core API. A name counts as known where the package or docs/operations/support.md has
it, as it is or in Python's form. Each name that is left is to be read, refused or ignored there. The exit code is 1
while there is one.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from rebalancer.model.errors import ConfigError

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "docs" / "operations" / "support.md"
TYPES = (
    "PodSpec", "PodStatus", "NodeSpec", "NodeStatus",
    "Container", "ContainerStatus", "ResourceRequirements", "Volume", "VolumeMount",
    "NodeAffinity", "PodAffinity", "PodAntiAffinity", "PodAffinityTerm", "Toleration", "TopologySpreadConstraint",
)  # fmt: skip
OPENAPI = Path("api/openapi-spec/swagger.json")
CONSTANTS = (
    "pkg/apis/core/annotation_key_constants.go",
    "staging/src/k8s.io/api/core/v1/annotation_key_constants.go",
    "staging/src/k8s.io/api/core/v1/well_known_taints.go",
    "staging/src/k8s.io/api/core/v1/well_known_labels.go",
)
_WORD = re.compile(r"[A-Za-z_][\w.-]*(?:/[\w.-]*\w)?")
_KEY = re.compile(r'= "([a-z0-9.-]+/[\w.-]+)"')


def fields_of(checkout: Path) -> dict[str, str]:
    """`PodSpec.hostUsers` -> `hostUsers`, of the types above. Raises ConfigError for a folder without the document."""
    try:
        definitions = json.loads((checkout / OPENAPI).read_bytes())["definitions"]
        return {
            f"{name}.{field}": field
            for name in TYPES
            for field in definitions[f"io.k8s.api.core.v1.{name}"]["properties"]
        }
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{checkout}: expected a checkout of Kubernetes with {OPENAPI}: {error}") from None


def keys_of(checkout: Path) -> dict[str, str]:
    """Keys of annotations, labels and taints, each for itself."""
    files = [checkout / name for name in CONSTANTS if (checkout / name).exists()]
    return {key: key for file in files for key in _KEY.findall(file.read_text())}


@cache
def known_words() -> frozenset[str]:
    """Every word of the package and of the page that says what is ignored."""
    files: Iterable[Path] = (SUPPORT, *(ROOT / "rebalancer").rglob("*.py"))
    return frozenset(word for file in files for word in _WORD.findall(file.read_text()))


def in_python(name: str) -> str:
    """`hostUsers` -> `host_users`, `podIPs` -> `pod_ips`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def unnamed(new: Path, old: Path, known: frozenset[str]) -> list[str]:
    """What only the newer checkout has and nothing here names, in order. Raises ConfigError."""

    def names(checkout: Path) -> Mapping[str, str]:
        return fields_of(checkout) | keys_of(checkout)

    before = names(old)
    return sorted(
        where for where, name in names(new).items() if where not in before and not {name, in_python(name)} & known
    )


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    if len(arguments) != 2:
        print("expected two folders: the newer checkout and the older", file=sys.stderr)
        return 4
    try:
        found = unnamed(*map(Path, arguments), known_words())
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 4
    print(*found, sep="\n" if found else "", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
