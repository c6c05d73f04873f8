"""Each task's own share of the machine: control groups, processors, memory."""
