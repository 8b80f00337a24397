"""The simulated cluster: recorded loads, and the pods that carry them."""
