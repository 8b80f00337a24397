"""Profiles of a KubeSchedulerConfiguration that are unlike the default one, for pods with their `schedulerName`."""

from typing import Any

Json = dict[str, Any]

PROFILES: list[Json] = [
    {"schedulerName": "default-scheduler"},
    {
        "schedulerName": "packing",
        "plugins": {
            "multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 5}]},
            "score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]},
        },
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "MostAllocated",
                        "resources": [
                            {"name": "cpu", "weight": 3},
                            {"name": "memory", "weight": 1},
                            {"name": "example.com/gpu", "weight": 5},
                        ],
                    }
                },
            },
            {
                "name": "InterPodAffinity",
                "args": {"hardPodAffinityWeight": 30, "ignorePreferredTermsOfExistingPods": True},
            },
            {
                "name": "NodeAffinity",
                "args": {
                    "addedAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 40,
                                "preference": {
                                    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                                },
                            }
                        ],
                    }
                },
            },
            {
                "name": "PodTopologySpread",
                "args": {
                    "defaultingType": "List",
                    "defaultConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "topology.kubernetes.io/zone",
                            "whenUnsatisfiable": "ScheduleAnyway",
                        },
                        {"maxSkew": 6, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
                    ],
                },
            },
        ],
    },
    {
        "schedulerName": "ratio",
        "plugins": {"score": {"disabled": [{"name": "TaintToleration"}]}},
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 2}],
                        "requestedToCapacityRatio": {
                            "shape": [
                                {"utilization": 0, "score": 2},
                                {"utilization": 35, "score": 10},
                                {"utilization": 100, "score": 0},
                            ]
                        },
                    }
                },
            },
            {
                "name": "NodeResourcesBalancedAllocation",
                "args": {
                    "resources": [
                        {"name": "cpu", "weight": 1},
                        {"name": "memory", "weight": 1},
                        {"name": "example.com/gpu", "weight": 1},
                    ]
                },
            },
        ],
    },
]
