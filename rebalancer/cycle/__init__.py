"""One cycle: observe, find, plan, steer, admit, evict, record. Commands and the daemon run the same code."""
