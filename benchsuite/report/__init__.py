"""Afterwards: results into one table, one score, one comparison."""
