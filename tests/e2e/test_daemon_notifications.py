"""A daemon that evicts posts to the webhook that its policy names, and counts it."""

from pathlib import Path

from tests.e2e.servers import alert_policy, daemon, until, warm_lab
from tests.notifications.fakes import webhook


def test_a_daemon_notifies_a_webhook_of_its_evictions(tmp_path: Path) -> None:
    with webhook() as server, warm_lab(warm=1) as lab:
        (tmp_path / "url").write_text(server.url)
        receiver = {"name": "team", "slack": {"urlFile": str(tmp_path / "url")}}
        kubeconfig = tmp_path / "kubeconfig"
        lab.write_kubeconfig(kubeconfig)
        policy = alert_policy(lab.prometheus_url, notifications={"receivers": [receiver]})
        with daemon(tmp_path, policy, kubeconfig) as running:
            running.alert("warm-1")
            [post] = until(lambda: list(server.posts), running.tail)
            assert post["text"].splitlines()[0] == "test: 1 pod evicted from 1 node"
            assert "warm-1" in post["text"]
            assert until(lambda: running.metric("rebalancer_notifications_total", receiver="team", result="sent")) == 1
            assert "a-secret-of-the-webhook" not in running.tail()
