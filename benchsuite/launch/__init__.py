"""Start the planned tasks, watch them, and write one result each."""
