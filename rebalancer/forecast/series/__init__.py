"""From the history of pods to the series of nodes."""
