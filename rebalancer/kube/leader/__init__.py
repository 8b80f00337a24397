"""Leader election: the Lease, and the token that says whether this process leads."""
