"""CPU of the lab's pods and nodes."""
