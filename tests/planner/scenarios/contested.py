"""Small clusters with several hot nodes, little room, and services that may lose only one pod at a time: the order of
the moves decides there, and waits do."""

import random

from rebalancer.policy.schema.limits import Limits
from tests.builders import GIB, ANode, APod, a_budget, a_policy, replicas, some_limits
from tests.planner.builders.plans import ANY_REPLICAS, heavy
from tests.planner.builders.searches import Searched, searched

CPU = 16_000.0


def contested(number: int, *, order: int = 0) -> Searched:
    """The same for the same number; `order` shuffles the lists of nodes, pods and budgets."""
    rng = random.Random(number)
    hot = [f"h{index}" for index in range(rng.randint(1, 4))]
    others = [f"n{index}" for index in range(rng.randint(2, 6))]
    nodes = [ANode(name=name, cpu=CPU, used=CPU * rng.uniform(0.77, 0.93)) for name in hot]
    nodes += [ANode(name=name, cpu=CPU, used=CPU * rng.choice([0.1, 0.3, 0.45, 0.55, 0.62])) for name in others]
    pods: list[APod] = [heavy(name, CPU * rng.choice([0.3, 0.4, 0.45, 0.5])) for name in (*hot, *others)]
    budgets = []
    for service in range(rng.randint(3, 8)):
        on = {name: rng.choice([0, 1, 1, 2]) for name in hot}
        on[rng.choice(others)] = rng.choice([0, 1])
        name = f"svc{service}"
        pods += replicas(
            name,
            on,
            used=CPU * rng.choice([0.02, 0.04, 0.06, 0.1, 0.15]),
            cpu=CPU * rng.choice([0.01, 0.02, 0.05, 0.1]),
            memory=rng.choice([0.0, 1.0, 4.0]) * GIB,
            owner_kind=rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet"]),
        )
        if rng.random() < 0.3:
            budgets.append(a_budget(f"pdb-{name}", name, rng.choice([1, 1, 2])))
    limits = some_limits(
        cycle=rng.choice([4, 1000]), node=rng.choice([2, 1000, 1000]), service=rng.choice([1, 1, 2, 1000])
    )
    policy = a_policy(**ANY_REPLICAS).model_copy(update={"limits": Limits.model_validate(limits)})
    if order:
        shuffle = random.Random(order).shuffle
        shuffle(nodes)
        shuffle(pods)
        shuffle(budgets)
    return searched(nodes, pods, policy=policy, budgets=budgets, steers=rng.random() < 0.7)
