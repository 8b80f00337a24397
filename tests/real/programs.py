"""Record decisions of a real kube-scheduler for `tests/placement/test_recorded_decisions.py`:

    KUBEBUILDER_ASSETS=/path/to/its/bin python -m tests.real.programs

replaces the files of its minor version in tests/placement/decisions. The folder must hold etcd, kube-apiserver and
kube-scheduler.
"""

from rebalancer.model.cluster.releases import modelled_minor
from tests.real.builders.profiles import PROFILES
from tests.real.oracles.agreement import compare
from tests.real.readers.decisions import DECISIONS, Json, record

RECORDED: dict[str, tuple[int, int, int, list[Json]]] = {
    "default": (2, 30, 180, []),
    "profiles": (4, 30, 100, PROFILES),
    "sampled": (3, 120, 30, []),
}
"""File -> seed, nodes, pods, profiles."""


def main() -> None:
    """See the module."""
    DECISIONS.mkdir(exist_ok=True)
    for name, (seed, nodes, pods, profiles) in RECORDED.items():
        recording = record(seed=seed, nodes=nodes, pods=pods, profiles=profiles)
        path = DECISIONS / f"{name}-{modelled_minor(recording.kubernetes)}.json.gz"
        recording.write(path)
        agreement = compare(recording)
        print(f"{path}: kube-scheduler {recording.kubernetes}, {path.stat().st_size} bytes: {agreement}")
        print(*agreement.disagreements, sep="\n")


if __name__ == "__main__":
    main()
