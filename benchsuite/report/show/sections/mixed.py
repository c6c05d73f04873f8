"""The warning that the results of a report are of several machines, GPU models, drivers or versions of torch."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.report.format import count, few, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Sentence, Span

# The numbers of values and of jobs named.
_VALUES, _JOBS = 4, 4
# Fact of `Summary.mixed` -> what its values are called.
_NAMES = {
    "host": "host",
    "processor": "processor model",
    "GPU": "GPU model",
    "driver": "driver",
    "torch": "torch version",
}


def mixed_sentences(summary: Summary) -> Iterator[Sentence]:
    """One sentence with all that is mixed, and the jobs that have no number for it; none if nothing is mixed."""
    mixed = summary.mixed
    if not mixed:
        return
    parts = [
        f"{count(len(values), _NAMES.get(what, what))} ({', '.join(few([one_line(v, 60) for v in values], _VALUES))})"
        for what, values in mixed.items()
    ]
    spans = [Span("MIXED RESULTS", "warn", strong=True), Span(f": {', '.join(parts)}.", "warn")]
    unlike = [one_line(job.name) for job in summary.jobs if job.unlike_machines]
    if unlike:
        jobs = f"{count(len(unlike), 'job')} ({', '.join(few(unlike, _JOBS))})"
        spans.append(Span(f" No number of {jobs}, since the machines differ: report each machine alone.", "warn"))
    yield Sentence(tuple(spans))
