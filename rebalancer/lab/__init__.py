"""A practice cluster in one process: Kubernetes API, controllers, scheduler, kubelets, and CPU that follows the pods.

    with Lab.start("demo", speed=60) as lab:
        lab.write_kubeconfig(path)      # for `kubectl` and the `kubernetes` package
        lab.prometheus_url              # for a Prometheus client; plain selectors only
        lab.faults.set(error_share=0.5)
        lab.log.evictions(code=201)
        lab.truth.hot(0.75)

A test's own cluster: `Lab.start(scenario(nodes=[node("a")], workloads=[workload("web", place={"a": 3}, cpu=2.0)]))`.
"""

from rebalancer.lab.clock import LabClock
from rebalancer.lab.lab import Lab
from rebalancer.lab.loads.cpu import Breaks, CpuModel
from rebalancer.lab.scenarios.scenario import Scenario, ScenarioError, load, names, node, scenario, workload
from rebalancer.lab.scenarios.specs import HpaSpec, NodeSpec, PdbSpec, TaintSpec, WorkloadSpec

__all__ = [
    "Breaks",
    "CpuModel",
    "HpaSpec",
    "Lab",
    "LabClock",
    "NodeSpec",
    "PdbSpec",
    "Scenario",
    "ScenarioError",
    "TaintSpec",
    "WorkloadSpec",
    "load",
    "names",
    "node",
    "scenario",
    "workload",
]
