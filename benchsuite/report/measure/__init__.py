"""What the slices of one task say: its window, and whether it is steady."""
