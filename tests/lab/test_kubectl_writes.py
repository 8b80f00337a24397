"""kubectl and Helm as a newcomer types them: what they create, ask and read on the practice cluster."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rebalancer.lab import Lab
from rebalancer.lab.apiserver import protobuf
from rebalancer.lab.objects.errors import ApiError
from tests.deploy.programs import helm as helm_binary
from tests.lab.conftest import Client, three_nodes
from tests.lab.test_kubectl import KUBECTL, Kubectl

Start = Callable[..., Lab]

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: site, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: site}}
  template:
    metadata: {labels: {app: site}}
    spec: {containers: [{name: c, image: nginx}]}
"""

needs_kubectl = pytest.mark.skipif(not KUBECTL, reason="no kubectl on PATH or in KUBEBUILDER_ASSETS")


@pytest.fixture
def kubectl(start: Start, tmp_path: Path) -> Kubectl:
    return Kubectl(KUBECTL[0], start(three_nodes()), tmp_path)


@pytest.mark.real
@needs_kubectl
@pytest.mark.parametrize(
    "typed",
    [
        "create namespace mine",
        "create deployment site --image=nginx --replicas=2",
        "create configmap settings --from-literal=a=b",
        "create secret generic password --from-literal=a=b",
        "create serviceaccount me",
        "create role reader --verb=get --resource=pods",
        "create clusterrolebinding viewers --clusterrole=view --serviceaccount=default:me",
        "create job once --image=busybox -- true",
        "create cronjob often --image=busybox --schedule=@hourly -- true",
        "create quota few --hard=pods=10",
        "create pdb most --min-available=1 --selector=app=site",
        "create priorityclass high --value=10",
        "create ingress entry --rule=host/path=svc:80",
        "run alone --image=nginx",
    ],
)
def test_create_takes_protobuf(kubectl: Kubectl, typed: str) -> None:
    done = kubectl(*typed.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert "created" in done.stdout


@pytest.mark.real
@needs_kubectl
def test_a_created_deployment_runs_and_its_namespace_can_be_deleted(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "mine").returncode == 0
    assert kubectl("create", "deployment", "site", "--image=nginx", "--replicas=2", "-n", "mine").returncode == 0
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/site", "-n", "mine").stdout
    assert "containers started" in kubectl("logs", "deployment/site", "-n", "mine").stdout
    output = kubectl("exec", "-n", "mine", "deployment/site", "--", "ls").stderr
    assert "the practice cluster runs no containers" in output
    assert kubectl("delete", "namespace", "mine").returncode == 0
    assert kubectl("get", "deployments", "-n", "mine", "-o", "name").stdout == ""


@pytest.mark.real
@needs_kubectl
def test_events_say_what_happened_to_pods(kubectl: Kubectl) -> None:
    assert kubectl("run", "alone", "--image=nginx").returncode == 0
    assert kubectl("wait", "--for=condition=Ready", "pod/alone", "--timeout=20s").returncode == 0
    listed = kubectl("get", "events").stdout
    assert "Successfully assigned default/alone to" in listed
    assert "Started containers" in kubectl("describe", "pod", "alone").stdout
    assert "Started" in kubectl("events", "--for", "pod/alone").stdout
    assert "alone" not in kubectl("get", "events", "-n", "shop").stdout


@pytest.mark.real
@needs_kubectl
def test_auth_can_i_answers(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "delete", "pods").stdout.strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list").stdout
    assert "lab" in kubectl("auth", "whoami").stdout


@pytest.mark.real
@needs_kubectl
def test_explain_and_strict_validation_know_the_fields(kubectl: Kubectl, tmp_path: Path) -> None:
    explained = kubectl("explain", "pods.spec.containers").stdout
    assert "containers <[]Container>" in explained
    assert "List of containers belonging to the pod." in explained
    assert "replicas" in kubectl("explain", "deployment", "--recursive").stdout
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(DEPLOYMENT)
    bad.write_text(DEPLOYMENT.replace("replicas", "replicaz").replace("site", "bad"))
    assert 'unknown field "spec.replicaz"' in kubectl("create", "-f", str(bad)).stderr
    assert "created (server dry run)" in kubectl("apply", "--dry-run=server", "-f", str(good)).stdout
    assert kubectl("apply", "-f", str(good)).stdout == "deployment.apps/site created\n"
    assert kubectl("apply", "-f", str(good)).stdout == "deployment.apps/site unchanged\n"
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", str(good)).stdout
    assert kubectl("delete", "-f", str(good)).returncode == 0
    good.write_text(DEPLOYMENT.replace("site", "other"))
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", str(good)).stdout


@pytest.mark.real
@needs_kubectl
def test_helm_keeps_its_releases_as_secrets(kubectl: Kubectl) -> None:
    helm = kubectl.with_binary(helm_binary())
    chart = str(Path(__file__).parents[2] / "deploy" / "helm" / "rebalancer")
    values = ["-n", "rb", "--set", "image.repository=example.com/rebalancer", "--set-string", "image.tag=1"]
    installed = helm("install", "rb", chart, "--create-namespace", *values)
    assert installed.returncode == 0, installed.stderr
    assert "deployed" in helm("list", "-A").stdout
    assert "secret/sh.helm.release.v1.rb.v1" in kubectl("get", "secrets", "-n", "rb", "-o", "name").stdout
    assert helm("upgrade", "rb", chart, *values).returncode == 0
    assert helm("rollback", "rb", "1", "-n", "rb").returncode == 0
    assert helm("uninstall", "rb", "-n", "rb").returncode == 0
    assert "rb" not in helm("list", "-A").stdout


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def _body(api_version: bytes, kind: bytes, message: bytes) -> bytes:
    return b"k8s\x00" + _field(1, _field(1, api_version) + _field(2, kind)) + _field(2, message)


def test_protobuf_is_read_as_json_has_it() -> None:
    meta = _field(1, b"site") + _field(2, b"") + _field(8, b"") + _field(11, _field(1, b"app") + _field(2, b"site"))
    container = _field(1, b"c") + _field(6, _field(3, 80))
    volume = _field(1, b"v") + _field(2, _field(2, b""))
    template = _field(2, _field(2, container) + _field(1, volume))
    spec = _field(1, 0) + _field(5, 0) + _field(3, template)
    decoded = protobuf.decode(_body(b"apps/v1", b"Deployment", _field(1, meta) + _field(2, spec)))
    assert decoded == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "site", "labels": {"app": "site"}},
        "spec": {
            "replicas": 0,
            "template": {
                "spec": {
                    "containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                }
            },
        },
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"kind": "Pod"}',
        b"k8s\x00\xff",
        _body(b"v1", b"Nothing", b""),
        _body(b"v1", b"Pod", b"\x0a\x7fshort"),
        _body(b"v1", b"Pod", struct.pack("<I", 7)),
    ],
)
def test_a_protobuf_body_that_is_broken_is_400(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        protobuf.decode(body)
    assert refused.value.code == 400


def test_formats_that_the_lab_has_not_are_406_and_415(client: Client) -> None:
    assert client("/api/v1/pods", headers={"Accept": "application/vnd.kubernetes.protobuf"}).code == 406
    assert (
        client("/api/v1/pods", headers={"Accept": "application/vnd.kubernetes.protobuf,application/json"}).code == 200
    )
    cbor = {"Content-Type": "application/cbor"}
    assert client("/api/v1/namespaces", method="POST", body={}, headers=cbor).code == 415
