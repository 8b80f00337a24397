"""The cycle: observe, find, plan, admit, evict, record. Commands and the daemon run the same code."""
