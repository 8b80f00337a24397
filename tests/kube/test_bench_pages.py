import numpy as np

from bench.lists.bench import bare_loop, read_snapshot, served_cluster


def test_the_benchmark_reads_what_it_rendered() -> None:
    with served_cluster(pods=1500, nodes=50) as port:
        snapshot = read_snapshot(port)
        assert bare_loop(port) > 1500
    assert len(snapshot.pods) == 1500
    assert len(snapshot.nodes) == 50
    assert (snapshot.pods.node >= 0).all()
    assert np.bincount(snapshot.pods.node, minlength=50).max() < 60
    kinds = {owner.kind for owner in snapshot.owners}
    assert kinds == {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"}
    assert snapshot.pods.ready.all()
    assert not any(owner.rolling_out for owner in snapshot.owners)
