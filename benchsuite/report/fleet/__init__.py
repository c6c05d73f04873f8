"""Many nodes side by side: each node's run is read to a small record, and the records are compared and judged."""
