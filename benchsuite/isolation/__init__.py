"""Give each task its own share of the machine: control groups, processors, memory. Knows nothing of launching."""
