"""Pipelines of stages: PipeDream's graphs, its partitioner and its configurations."""
