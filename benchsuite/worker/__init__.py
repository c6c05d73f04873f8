"""The worker process: it trains one task, from reading the task's file to writing the last event."""
