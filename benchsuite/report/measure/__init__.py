"""The window and the steadiness of one task's slices."""
