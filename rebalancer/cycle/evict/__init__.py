"""The execution of a plan: reservations, calls, waiting and what is measured afterwards."""
