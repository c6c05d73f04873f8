"""The purchase requirements on a run: its figures stand for the suite and for the whole machine."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite import files
from benchsuite.describe.profile import load
from benchsuite.describe.tasks import lacks_gpus
from benchsuite.findings import Finding, note, ok, unmet
from benchsuite.records import Run
from benchsuite.report.format import count, percent
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.load import OPEN
from benchsuite.report.read.workload import overlap_words
from benchsuite.report.stats import weights as weighing
from benchsuite.report.stats.score import FAILURE_LIMIT
from benchsuite.report.verify import remedies, some
from benchsuite.report.verify.evidence import Evidence

MIN_OVERLAP = 0.9


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Each demand, met or not."""
    if evidence.run:
        yield _profile(evidence.run)
        yield _gpus(evidence, evidence.run)
    yield _weights(evidence)
    yield _code(evidence)
    if evidence.loaded.trainings and not evidence.loaded.rows:
        text = f"{count(len(evidence.loaded.trainings), 'training')} by epochs, which have no score"
        yield unmet("trainings", text, "run a shipped profile: benchsuite jobs standard")
        return
    yield _repeats(evidence)
    yield _failures(evidence)
    yield _isolation(evidence)
    yield _overlap(evidence)


def _profile(run: Run) -> Finding:
    used = run.profile
    about, remedy = "profile", "run a shipped profile unchanged: benchsuite jobs standard"
    if used.official:
        shipped = files.shipped("profiles").get(used.based_on or used.name)
        if shipped and load(str(shipped)).sha256 == used.sha256:
            return ok(about, f"{used.name}, official: the one that this benchsuite ships, sha256 {used.sha256[:12]}")
        text = f"{used.name}, official in the run's records, but this benchsuite ships another of that name"
        return unmet(about, text, "verify it with the benchsuite that ran it, or " + remedy)
    if used.based_on:
        text = f"{used.name}, modified from {used.based_on} in {count(len(used.differences), 'place')}"
        return unmet(about, text, remedy, used.differences)
    return unmet(about, f"{used.name}, neither a shipped profile nor a modification of one", remedy)


def _gpus(evidence: Evidence, run: Run) -> Finding:
    present, used = {gpu.uuid for gpu in run.machine.gpus}, evidence.summary.gpus_used
    if not present:
        why = f": {run.machine.gpu_note}" if run.machine.gpu_note else ""
        return unmet("GPUs", f"the machine has no GPU{why}", "run it on a machine with GPUs")
    said = f"; {run.machine.gpu_note}" if run.machine.gpu_note else ""
    if used < len(present):
        idle = some(gpu.uuid for gpu in run.machine.gpus if gpu.uuid not in run.machine.visible)
        text = f"{used} of {len(present)} used" + (f"; not visible to the run: {idle}" if idle else "")
        return unmet("GPUs", text + said, "run it with all GPUs visible (CUDA_VISIBLE_DEVICES unset)")
    if said:
        return unmet("GPUs", f"all {len(present)} that answer are used{said}", "repair the GPU, then make a new run")
    return ok("GPUs", f"all {len(present)} used")


def _weights(evidence: Evidence) -> Finding:
    summary = evidence.summary
    found = weighing.weights_for(summary.profile)
    if found.values is None:
        return unmet("weights", "not shipped for this profile: every job weighs 1", "run a shipped profile")
    laid = weighing.weigh(found, summary)
    text = f"{found.name}, official, sha256 {(found.sha256 or '')[:12]}; report --weights applies others"
    if laid.missing:
        missing = f"weighed jobs that were not run: {some(laid.missing)}"
        return unmet("weights", f"{text}; {missing}", "run all jobs of the profile, without --name and --exclude")
    return ok("weights", text)


def _code(evidence: Evidence) -> Finding:
    codes = evidence.summary.code
    unknown = ", installed: its commit is not known"
    shown = "; ".join(code.words + ("" if code.commit else unknown) for code in codes) or "not recorded"
    remedy = "run one version, from a release or a checkout without changes"
    if len(codes) != 1:
        return unmet("code", f"{count(len(codes), 'version')} of benchsuite in one run: {shown}", remedy)
    if codes[0].dirty:
        return unmet("code", shown, remedy)
    return ok("code", shown)


def _repeats(evidence: Evidence) -> Finding:
    least = min((len([r for r in job.repeats if r.ok]) for job in evidence.summary.jobs), default=0)
    text = f"{count(least, 'repeat')} with a figure for every job"
    if least >= MIN_REPEATS:
        return ok("repeats", text)
    return unmet("repeats", text, remedies.more_repeats(evidence, MIN_REPEATS))


def _failures(evidence: Evidence) -> Finding:
    """The failures among the tasks that have ended. The finding "tasks" is about the others."""
    able = [row for row in evidence.loaded.rows if not lacks_gpus(row.task)]
    ended = [row for row in able if row.status not in OPEN]
    failed = [row for row in ended if row.status != "ok"]
    if not ended:
        return unmet("failures", "no task has ended", remedies.finish(evidence))
    rate, left, unable = len(failed) / len(ended), len(able) - len(ended), len(evidence.loaded.rows) - len(able)
    still = f", {left:,} not ended" if left else ""
    still += f", {unable:,} not run for lack of GPUs" if unable else ""
    text = f"{percent(rate)}: {len(failed)} of {count(len(ended), 'task')} not ok{still}"
    text += f"; up to {percent(FAILURE_LIMIT, 0)} passes"
    if rate > FAILURE_LIMIT:
        lines = [f"{row.task.id}: {row.status}, {row.reason}" for row in failed]
        return unmet("failures", text, "remove the cause and make a new run: a retry does not undo a failure", lines)
    return ok("failures", text)


def _isolation(evidence: Evidence) -> Finding:
    """Control groups give every measured task its own processors and a memory limit."""
    results = evidence.measured
    weak = [r for r in results if not r.tenant.cpu.startswith("cpuset") or r.tenant.memory == "none"]
    if not results:
        return unmet("isolation", "no task was measured", remedies.finish(evidence))
    if weak:
        kinds = sorted({f"CPU {r.tenant.cpu}, memory {r.tenant.memory} ({r.tenant.reason})" for r in weak})
        text = f"not in force for {len(weak)} of {count(len(results), 'task')}"
        return unmet("isolation", text, "run it with --require-isolation; benchsuite doctor shows what it needs", kinds)
    shared = sorted({r.tenant.reason for r in results if r.tenant.crowded})
    if shared:
        text = "in force, but another run of benchsuite used the same processors and memory"
        return unmet("isolation", text, "stop other work on the machine, and make a new run", shared)
    found = sorted({f"CPU {r.tenant.cpu}, memory {r.tenant.memory}" for r in results})
    return ok("isolation", f"in force for all {count(len(results), 'task')}: {'; '.join(found)}")


def _overlap(evidence: Evidence) -> Finding:
    share = evidence.summary.overlap
    if share is None:
        return note("overlap", "no wave has two tasks with a window")
    text = overlap_words(share)
    if share < MIN_OVERLAP:
        remedy = "find the task that starts late or ends early: it fails, or its data ends"
        return unmet("overlap", f"{text}; {percent(MIN_OVERLAP, 0)} are demanded", remedy)
    return ok("overlap", text)
