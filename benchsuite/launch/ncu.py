"""The command line of Nsight Compute, which starts a worker and records its kernels."""

from __future__ import annotations

from benchsuite.describe.tasks import Task
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


def profiler(task: Task, events: str) -> list[str]:
    """The words before the worker's own command line; empty unless the task asks for ncu.

    Clocks stay as they are (`--clock-control none`): locking them would change the machine for other users.

    Args:
        events: the event file of the task, beside which ncu writes its table.
    """
    asked = task.trace
    if asked is None or asked.tool != "ncu":
        return []
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
