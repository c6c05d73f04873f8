"""Analyses of what a profiler wrote: timelines of torch.profiler, tables of Nsight Compute and of nvprof."""
