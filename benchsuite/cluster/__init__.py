"""Runs on many nodes: what Slurm is asked, what is submitted, and how the nodes stand."""
