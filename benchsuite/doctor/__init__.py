"""Checks of this machine: findings, each with its remedy."""
