"""Measures how fast machines train neural networks."""

__version__ = "0.1.0"
