"""Fused arrays: B models of one kind, trained by one process as one model whose weights have one more dimension."""
