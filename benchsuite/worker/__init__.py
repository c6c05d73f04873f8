"""Inside the child: one task, from its file to its last event."""
