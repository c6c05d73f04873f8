"""Is a node fit? The rules, and the verdict on a run of the probes. Nothing here runs anything."""
