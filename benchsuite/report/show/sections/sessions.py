"""The sessions of a report: how many runs it is of, and what an interval therefore includes."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.report.format import few, one_line
from benchsuite.report.read.summary import Session, Summary
from benchsuite.report.show.document import Fact, fact
from benchsuite.report.show.sections.origin import date_words
from benchsuite.report.stats.samples import MIN_SESSIONS
from benchsuite.report.stats.sessions import not_in_every

# The numbers of sessions, jobs, and differences of a session that are named.
_SESSIONS, _JOBS, _DIFFERENCES = 8, 8, 5


def session_facts(summary: Summary) -> Iterator[Fact]:
    """The sessions, the jobs that not every session has, and how the sessions differ; none without repeats."""
    if not any(job.repeats for job in summary.jobs):
        return
    yield fact("Sessions", sessions_words(summary))
    if partly := [f"{name}: {words}" for name, words in not_in_every(summary).items()]:
        yield fact("Not in every session", "; ".join(few(partly, _JOBS)), "warn")
    for place, session in enumerate(summary.sessions, 1):
        if session.differences:
            differences = few((one_line(difference, 120) for difference in session.differences), _DIFFERENCES)
            yield fact(f"Session {place} differs", "; ".join(differences), "warn")


def sessions_words(summary: Summary) -> str:
    """The number of sessions with their dates and hosts, and what an interval includes."""
    sessions = summary.sessions
    if not sessions:
        alone = "one session: an interval leaves out what changes between runs"
        return f"{alone}; {MIN_SESSIONS} sessions include it (benchsuite report RUN RUN RUN)"
    named = ", ".join(few(map(_named, sessions), _SESSIONS))
    hosts = list(dict.fromkeys(host for session in sessions for host in session.hosts))
    on = f" on {len(hosts)} hosts ({', '.join(few(map(one_line, hosts), _SESSIONS))})" if len(hosts) > 1 else ""
    found = f"{len(sessions)} sessions ({named}){on}"
    if len(sessions) < MIN_SESSIONS:
        below = f"from {MIN_SESSIONS} sessions on an interval includes the variation between them"
        return f"{found}, taken as repeats: {below}"
    return f"{found}: an interval includes the variation between them"


def _named(session: Session) -> str:
    """The date, else the run's name."""
    return one_line(date_words(session.created) or session.source, 40)
