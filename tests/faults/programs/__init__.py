"""Programs of the fault matrix and of the soak."""
