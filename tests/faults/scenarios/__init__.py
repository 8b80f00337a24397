"""Stages of the soak: a fleet of clusters and replicas, its faults, and two runs."""
