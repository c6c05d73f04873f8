"""A folder of milarun 2020's result files as a summary: the runs that count, in groups, with their pooled figures."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchsuite.errors import encodable
from benchsuite.report.measure.intervals import log_interval, mean, perf_adjusted, relative_std
from benchsuite.report.milarun import summary_files
from benchsuite.report.milarun.runs import Run, read_run
from benchsuite.report.milarun.suite import ORIGIN, RULE, bare, common_suite, order
from benchsuite.report.read.summary import BadFile, JobSummary, ProfileRef, Repeat, Summary, TaskSummary


def read_folder(path: Path, files: Iterable[tuple[Path, str]]) -> Summary | None:
    """The summary of milarun's results among files; None without any.

    Args:
        path: the folder.
        files: its JSON files that are not benchsuite's, each with the reason. A file that is not milarun's either is
            listed with that reason; summaries and weights of milarun are skipped.
    """
    runs: list[Run] = []
    bad: list[tuple[Path, str]] = []
    any_result = False
    for file, why in files:
        content = summary_files.read_json(file)
        if not summary_files.is_result(content):
            if not summary_files.is_summary(content) and not summary_files.is_weights(content):
                bad.append((file, why))
            continue
        any_result = True
        found = read_run(content)
        if isinstance(found, str):
            bad.append((file, found))
        elif not found.sub_job:
            runs.append(Run(found, file))
    if not any_result:
        return None
    return _summary(path, runs, bad)


def _summary(path: Path, runs: Sequence[Run], bad: Iterable[tuple[Path, str]]) -> Summary:
    suite = common_suite(run.result.name for run in runs)
    by_group: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_group[bare(run.group, suite)].append(run)
    gpus = {(run.result.hostname, gpu) for run in runs for gpu in run.visible}
    return Summary(
        source=encodable(path.resolve().name),
        origin=ORIGIN,
        created=min((start for run in runs if (start := run.start)), default=None),
        provenance=f"results of milarun 2020, {RULE}",
        planned=False,
        profile=ProfileRef(name=suite) if suite else None,
        gpus_used=len(gpus),
        isolation=dict(Counter(_isolation(run.cgroup) for run in runs)),
        jobs=tuple(_job(name, by_group[name], suite) for name in sorted(by_group, key=order)),
        bad_files=tuple(BadFile(file=file.relative_to(path).as_posix(), reason=why) for file, why in bad),
    )


def _isolation(cgroup: str | None) -> str:
    return f"cgroup {cgroup} asked, not recorded whether in force" if cgroup else "no cgroup asked"


def _job(name: str, runs: Sequence[Run], suite: str | None) -> JobSummary:
    samples = [sample for run in runs for sample in run.samples]
    ok = [run for run in runs if not run.trouble]
    perf, std = mean(samples), relative_std(samples)
    fail, gpus = len(runs) - len(ok), runs[0].group_gpus
    repeats, peaks = _repeats(runs), [run.peak_mib for run in ok]
    return JobSummary(
        **summary_files.by_name(name, suite, gpus),
        devices="progression" if gpus else "each" if len(runs[0].visible) == 1 else "all",
        n=len(runs),
        fail=fail,
        perf=perf,
        std=std,
        perf_adj=perf_adjusted(perf, std, len(runs), fail),
        min=min(samples, default=None),
        max=max(samples, default=None),
        interval=log_interval([repeat.perf for repeat in repeats if repeat.perf is not None]),
        slices=sum(len(rates) for run in ok for rates in run.windows),
        seconds=math.fsum(run.seconds for run in ok),
        peak_memory_bytes=summary_files.memory_bytes(max((mib for mib in peaks if mib is not None), default=None)),
        repeats=repeats,
        tasks=tuple(_task(name, run) for run in runs),
    )


def _repeats(runs: Iterable[Run]) -> tuple[Repeat, ...]:
    by_repeat: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_repeat[run.repeat].append(run)
    return tuple(
        Repeat(
            repeat=repeat,
            tasks=len(found),
            ok=sum(not run.trouble for run in found),
            perf=mean(sample for run in found for sample in run.samples),
        )
        for repeat, found in sorted(by_repeat.items())
    )


def _task(name: str, run: Run) -> TaskSummary:
    status, reason = run.trouble or ("ok", None)
    measured = status == "ok"
    return TaskSummary(
        id=f"{name}.J{run.result.job_id}",
        host=run.result.hostname,
        repeat=run.repeat,
        device=run.device,
        status=status,
        reason=reason,
        perf=mean(run.samples),
        slices=sum(map(len, run.windows)) if measured else 0,
        items=round(run.items) if measured else 0,
        seconds=run.seconds if measured else 0.0,
        file=run.file.name,
    )
