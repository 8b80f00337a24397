"""One plan: its batches, its queue, its waits, and the best of several."""
