"""The parts of `scripts/bench/soak.py`."""
