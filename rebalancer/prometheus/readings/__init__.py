"""Usage of nodes and pods, as a cycle reads it."""
