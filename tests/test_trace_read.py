"""What a profiler wrote: timelines of torch.profiler, tables of Nsight Compute and of nvprof."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import in_process, one_line_error

from benchsuite.errors import ResultError
from benchsuite.trace import ncu, nvprof, timeline
from benchsuite.trace.intervals import Intervals, both, outside, union
from benchsuite.trace.kernels import kernel_class, short_name
from benchsuite.trace.utilisation import GpuUse, analysed

CAPTURED = Path(__file__).parent / "data" / "traces"
AMP = CAPTURED / "kineto_amp.json.gz"


def event(category: str, name: str, start: float, duration: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 0, "args": args}


def kernel(start: float, duration: float, correlation: int = 0, name: str = "gemm", device: int = 0) -> dict[str, Any]:
    return event("kernel", name, start, duration, device=device, stream=7, correlation=correlation)


def call(start: float, correlation: int, name: str = "cudaLaunchKernel", duration: float = 1.0) -> dict[str, Any]:
    return event("cuda_runtime", name, start, duration, correlation=correlation)


def step(number: int, start: float, duration: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", start, duration)


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}), encoding="utf-8")
    return path


def use_of(path: Path, *events: dict[str, Any]) -> GpuUse:
    (use,) = analysed(timeline.read(written(path, *events)))
    return use


def test_a_captured_timeline_has_the_figures_that_were_measured_with_it() -> None:
    (use,) = analysed(timeline.read(AMP))
    assert use.launches == 1248
    assert 1e6 * use.window_s == pytest.approx(66_588, abs=1)
    assert 1e6 * sum(one.elapsed_s for one in use.kernels) == pytest.approx(16_042, abs=1)
    assert use.utilisation == pytest.approx(0.2407, abs=1e-4)
    parts = use.compute_s + use.communication_s + use.copies_s + use.idle.total_s
    assert parts == pytest.approx(use.window_s)
    assert use.idle.host_s > 0.9 * use.idle.total_s  # eager steps of a small batch: launches limit it


def test_kernels_that_overlap_count_once_and_work_outside_the_steps_does_not(tmp_path: Path) -> None:
    use = use_of(
        tmp_path / "t.json",
        step(0, 100, 50),
        step(1, 150, 50),
        kernel(50, 100),  # begins before the window
        kernel(140, 20),  # 10 of these 20 overlap with the one before
        kernel(195, 30),  # ends after the last step, which extends the window
    )
    assert use.window_s == pytest.approx(125e-6)
    assert use.compute_s == pytest.approx(90e-6)
    assert 0 < use.utilisation <= 1


def test_idle_time_is_divided_by_its_cause(tmp_path: Path) -> None:
    use = use_of(
        tmp_path / "t.json",
        step(0, 0, 1000),
        call(2, 1),
        kernel(10, 90, 1),
        call(50, 2),
        kernel(110, 90, 2),  # launched in time: 10 of the queue
        event("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 210, 60),
        call(290, 3),
        kernel(300, 100, 3),  # 100 late, of which 60 wait for the loader
        call(350, 4, "cudaStreamSynchronize", 55),
        call(480, 5),
        kernel(500, 500, 5),  # 100 late after a wait for the GPU
    )
    idle = {name: round(1e6 * getattr(use.idle, f"{name}_s")) for name in ("input", "sync", "host", "queue")}
    # 10 before the first kernel, whose launch came after the window began, and 40 beside the loader, are the host's.
    assert idle == {"input": 60, "sync": 100, "host": 50, "queue": 10}


def test_copies_and_collectives_are_exposed_only_where_no_kernel_runs(tmp_path: Path) -> None:
    use = use_of(
        tmp_path / "t.json",
        kernel(0, 100),
        kernel(50, 100, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        event("gpu_memcpy", "Memcpy HtoD", 140, 40, device=0, correlation=3),
    )
    assert (use.compute_s, use.communication_s, use.copies_s) == pytest.approx((100e-6, 50e-6, 30e-6))
    assert use.hidden_communication == pytest.approx(0.5)
    assert use.hidden_copies == pytest.approx(0.25)
    assert use.launches == 2


def test_each_gpu_of_a_trace_has_its_own_figures(tmp_path: Path) -> None:
    both_gpus = analysed(timeline.read(written(tmp_path / "t.json", kernel(0, 100), kernel(0, 50, device=1))))
    assert [(use.device, use.utilisation) for use in both_gpus] == [(0, 1.0), (1, 0.5)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"hello", "no trace that is known"),
        (b'{"traceEvents": [{"ph": "X"', "cut off or damaged"),
        (b'{"traceEvents": [', "cut off or damaged"),
        (b'{"traceEvents": {}}', "'traceEvents' is not an array"),
        (b'{"a": 1}', "it has no 'traceEvents'"),
        (b'{"traceEvents": []}', "the trace is empty"),
        (b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":2}]}', "no kernel of a GPU"),
        (b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"a","ts":"1","dur":1e400}]}', "the trace is empty"),
        (b"[" * 200_000, "cut off or damaged|no trace"),
        (gzip.compress(b'{"traceEvents": []}')[:-9], "cut off"),
        (b"\x1f\x8bnot gzip at all", "cannot be read"),
        (b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "ncu reports: ERR_NVGPUCTRPERM"),
        (b"==PROF== Connected\n==WARNING== No kernels were profiled.\n", "no header with ID and Kernel Name"),
        (b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n', "no kernel was profiled"),
        (b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k"\n', "has 2 of 5 cells"),
        (b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n0,k,x,,1\n', "no kernel has gpc__cycles"),
        (b"Name,Single-Precision Function Unit Utilization\nk,Low (3)\n", "row 1 has no duration"),
        (b"Name,Duration(ns),Single-Precision Function Unit Utilization\nk,5,Odd\n", "'Odd' is no level"),
        (b"Name,Duration(ns),Single-Precision Function Unit Utilization\n", "no kernel with a duration"),
    ],
    ids=range(20),
)
def test_a_file_that_is_no_whole_trace_is_refused_in_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    done = in_process("trace", "--read", "t", cwd=tmp_path)
    one_line_error(done, "t: ")
    assert re.search(why, done.stderr), done.stderr


def test_an_event_at_the_edge_of_a_chunk_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.json", *(kernel(10 * n, 5) for n in range(50)))
    for size in (1, 7, 64):
        monkeypatch.setattr("benchsuite.trace.chrome.CHUNK_CHARACTERS", size)
        (use,) = analysed(timeline.read(path))
        assert use.launches == 50


@pytest.mark.parametrize(
    ("file", "expected"),
    [("fp32", (14.820, None, 2.871, 10.675, 3.288)), ("amp", (16.910, None, 1.501, 7.060, 4.197))],
)
def test_captured_tables_of_ncu_have_the_cycle_weighted_means_of_all_kernels(
    file: str, expected: tuple[float | None, ...]
) -> None:
    path = CAPTURED / f"ncu60_{file}.csv.gz"
    use = ncu.analysed(path, ncu.read(path))
    assert use.launches == 60
    assert [core.percent and round(core.percent, 3) for core in use.cores] == list(expected)
    missing = use.cores[1]  # this chip has no metric of that name
    assert missing.kernels == 0
    assert "sm__inst_executed_pipe_fp16" in missing.metric


HEADER = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'


def test_the_last_kernel_and_those_of_other_processes_count(tmp_path: Path) -> None:
    rows = [("0", "1", 1000, 10), ("1", "1", 2000, 40), ("0", "2", "3,000", 80)]
    lines = [
        line
        for number, process, cycles, percent in rows
        for line in (
            f'"{number}","{process}","k","gpc__cycles_elapsed.max","cycle","{cycles}"',
            f'"{number}","{process}","k","sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed","%","{percent}"',
        )
    ]
    path = tmp_path / "n.csv"
    path.write_text(
        "program says hello\n==PROF== x\n" + HEADER + "\n".join(lines) + "\n==PROF== end\n", encoding="utf-8"
    )
    use = ncu.analysed(path, ncu.read(path))
    assert use.cores[0].percent == pytest.approx((1000 * 10 + 2000 * 40 + 3000 * 80) / 6000)


@pytest.mark.parametrize(
    ("text", "value"), [("2,816", 2816), ("27.595.520", 27_595_520), ("0,44", 0.44), ("1.5", 1.5), ("1,234.5", 1234.5)]
)
def test_numbers_are_read_in_several_locales(text: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text(HEADER + f'"0","1","k","gpc__cycles_elapsed.max","cycle","{text}"\n', encoding="utf-8")
    assert ncu.analysed(path, ncu.read(path)).cycles == value


def test_the_correction_of_nvvp_has_the_result_of_its_documentation() -> None:
    assert nvprof.corrected(0.5, 1.609, 1.3) == pytest.approx(2.6, abs=0.01)
    for bad in ((0.5, 1.0, 1.0), (101, 2, 1), (90, 2, 1.5)):
        with pytest.raises(ResultError):
            nvprof.corrected(*bad)


def test_levels_of_nvprof_become_a_mean_over_time(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "==123== note\nName,Invocations,Avg. Duration(ns),Single-Precision Function Unit Utilization\n"
        'a,2,100,Max (10)\nb,1,"1,000",Low (3)\nc,1,800,\n',
        encoding="utf-8",
    )
    use = nvprof.fp32_use(path)
    assert use.percent == pytest.approx(10 * (200 * 10 + 1000 * 3) / 2000)
    assert [(one.name, one.level) for one in use.kernels] == [("b", 3), ("c", 0), ("a", 10)]
    assert use.unknown == 1


def test_intervals_behave_as_sets_of_time() -> None:
    def spans(*pairs: tuple[float, float]) -> Intervals:
        starts, ends = np.array(pairs, dtype=float).reshape(-1, 2).T
        return union(starts, ends)

    def listed(one: Intervals) -> list[tuple[float, float]]:
        return list(zip(one.starts.tolist(), one.ends.tolist(), strict=True))

    assert listed(spans((5, 6), (0, 2), (1, 3), (3, 4), (7, 7))) == [(0, 4), (5, 6)]
    assert listed(both(spans((0, 10)), spans((1, 2), (9, 12)))) == [(1, 2), (9, 10)]
    assert listed(both(spans((0, 3), (4, 8)), spans((2, 5), (7, 9)))) == [(2, 3), (4, 5), (7, 8)]
    assert listed(both(spans(), spans((0, 1)))) == []
    assert listed(outside(spans((1, 2), (3, 9)), 0, 5)) == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("name", "kind", "short"),
    [
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int)",
            "pooling",
            "max_pool_forward_nchw",
        ),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "communication", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "matrix product", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"),
        ("void cutlass::Kernel2<cutlass_80_simt>(P)", "matrix product", "Kernel2<cutlass_80_simt>"),
        ("void pytorch_flash::flash_fwd_kernel<X>(Y)", "attention", "flash_fwd_kernel"),
        ("triton_per_fused_native_layer_norm_0", "batch or layer norm", "triton_per_fused_native_layer_norm_0"),
        ("something new", "other", "something new"),
    ],
)
def test_kernels_have_a_class_and_a_short_name(name: str, kind: str, short: str) -> None:
    assert kernel_class(name) == kind
    assert short_name(name) == short


def test_the_command_shows_the_division_of_the_window_and_its_json(tmp_path: Path) -> None:
    shown = in_process("trace", "--read", str(AMP), cwd=tmp_path)
    assert shown.returncode == 0
    assert "GPU 0 runs kernels for 24.1 % of 0.0666 s" in shown.stdout
    values = json.loads(in_process("trace", "--read", str(AMP), "--json", cwd=tmp_path).stdout)
    assert values["tool"] == "timeline"
    assert values["gpus"][0]["launches"] == 1248
    assert "2.6 %" in in_process("trace", "--nvvp", "0.5", "1.609", "1.3", cwd=tmp_path).stdout
    one_line_error(in_process("trace", cwd=tmp_path), "give one of ENTRY, --read FILE")
