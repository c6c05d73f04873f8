"""The command lines of profilers that start a worker and record its kernels: ncu, nsys and nvprof."""

from __future__ import annotations

from benchsuite.describe.tasks import Task, Trace
from benchsuite.events import trace_file

# Each kind of cores under the names of several generations of GPUs; ncu writes "n/a" for those that a GPU lacks.
METRICS = (
    "gpc__cycles_elapsed.max",
    "gpu__time_duration.sum",
    *(
        f"{name}.avg.pct_of_peak_sustained_elapsed"
        for name in (
            "sm__inst_executed_pipe_fma",
            "sm__inst_executed_pipe_fp16",
            "sm__inst_executed_pipe_tensor",
            "sm__pipe_tensor_cycles_active",
            "sm__inst_executed_pipe_xu",
            "dram__throughput",
        )
    ),
    *(f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum" for kind in ("ffma", "fadd", "fmul")),
)


# Tool -> what to use where it is not installed.
INSTEAD = {
    "ncu": "Nsight Compute is not on PATH; install it, or use --tool timeline",
    "nsys": "Nsight Systems is not on PATH; install it, or use --tool timeline, whose file Perfetto opens",
    "nvprof": "nvprof is not on PATH, and does not support GPUs since Turing; use --tool timeline or --tool ncu",
}


def profiler(task: Task, events: str) -> list[str]:
    """The words before the worker's own command line; empty unless the task asks for one of these tools.

    The tools record from cudaProfilerStart to cudaProfilerStop, which the worker calls.

    Args:
        events: the event file of the task, beside which the tool writes its own.
    """
    asked = task.trace
    if asked is None:
        return []
    if asked.tool == "nsys":
        return [*_NSYS, f"--output={trace_file(events, '.nsys-rep')}"]
    if asked.tool == "nvprof":
        return [*_NVPROF, trace_file(events, ".nvvp")]
    return _ncu(asked, events) if asked.tool == "ncu" else []


_NSYS = ("nsys", "profile", "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--trace=cuda,nvtx")
_NVPROF = ("nvprof", "--profile-from-start", "off", "--export-profile")


def _ncu(asked: Trace, events: str) -> list[str]:
    """Clocks stay as they are: locking them would change the machine for other users."""
    return [
        "ncu",
        "--csv",
        "--clock-control=none",
        "--profile-from-start=off",
        "--target-processes=all",
        f"--launch-count={asked.kernels}",
        f"--metrics={','.join(METRICS)}",
        f"--log-file={trace_file(events, '.ncu.csv')}",
    ]
