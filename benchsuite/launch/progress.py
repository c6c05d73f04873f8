"""How a run goes, for people, on stderr: a live table on a terminal, one line a task elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from benchsuite.launch.child import Child
from benchsuite.records import Result
from benchsuite.tasks import Task

# Allowed for start and warm-up where no task of the run has shown how long they take.
START_GUESS_S = 10.0


class Progress:
    """An observer that shows. `verdict` puts an ok result into words, "no figure: ..." where it is too thin for one."""

    def __init__(
        self,
        tasks: Sequence[Task],
        verdict: Callable[[Result], str],
        keep: Callable[[Result], None] | None = None,
        console: Console | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._verdict = verdict
        self._keep = keep
        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._live: Live | None = None
        self.over = 0
        self.thin = 0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def wave(self, tasks: Sequence[Task]) -> None:
        if not self._live:
            places = ", ".join(t.device for t in tasks)
            self._console.print(f"{escape(tasks[0].job.name)} on {places}: starting", markup=True)

    def look(self, children: Sequence[Child]) -> None:
        if self._live:
            self._live.update(self._table(children))

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        self.over += 1
        self.counts[result.status if path else "lost"] += 1
        if problem:
            self.problems.append(problem)
        style = {"ok": "green", "skipped": "yellow", "interrupted": "yellow"}.get(result.status, "red")
        told = self._verdict(result) if result.status == "ok" else (result.error.message if result.error else "")
        task = result.task
        line = f"[{self.over}/{len(self.tasks)}] {task.job.name} on {task.device}, repeat {task.repeat}"
        self.thin += told.startswith("no figure")
        first = told.strip().splitlines()[0] if told.strip() else ""
        self._console.print(f"{escape(line)}: [{style}]{result.status}[/{style}] {escape(first)}")
        if problem:
            self._console.print(escape(problem), style="red")
        if self._keep:
            self._keep(result)

    def _table(self, children: Sequence[Child]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading, side in (("job", "left"), ("on", "left"), ("state", "left"), ("rate", "right"), ("left", "right")):
            table.add_column(heading, justify="right" if side == "right" else "left", style=None, no_wrap=True)
        now = time.monotonic()
        for child in children:
            seen = child.seen
            unit = seen.ready.unit if seen.ready else "item"
            rate = _rate(child)
            shown = f"{rate:,.0f} {unit}/s" if rate is not None else ""
            table.add_row(
                escape(child.task.job.name), child.task.device, _state(child), shown, _clock(left_s(child, now))
            )
        waiting = len(self.tasks) - self.over - len(children)
        rest = sum(_expected_s(t) for t in self._following(len(children)))
        total = rest + max((left_s(c, now) or 0.0 for c in children), default=0.0)
        table.caption = (
            f"{self.over} of {len(self.tasks)} tasks done, {max(waiting, 0)} waiting, about {_clock(total)} left"
        )
        table.caption_justify = "left"
        return table

    def _following(self, running: int) -> list[Task]:
        """One task for each wave that is still to come."""
        rest = self.tasks[self.over + running :]
        first = {(t.repeat, t.job.name): t for t in reversed(rest)}
        return list(first.values())


def _rate(child: Child) -> float | None:
    if not child.seen.slices:
        return None
    last = child.seen.slices[-1].slice
    return last.items / last.elapsed_s if last.elapsed_s > 0 else None


def _state(child: Child) -> str:
    if child.go_s is None:
        return "waiting" if child.seen.ready else "starting"
    return "holding" if child.seen.measured else "measuring"


def _expected_s(task: Task) -> float:
    """How long a task takes, as far as its profile tells."""
    return START_GUESS_S + min(max(task.job.min_time_s, 1.0), task.job.max_time_s)


def left_s(child: Child, now_s: float) -> float | None:
    """Seconds until a task's stop rule is met, at its present rate; None before it has begun."""
    if child.go_s is None:
        return None
    job, gone = child.task.job, now_s - child.go_s
    needs = job.min_time_s - gone
    if job.max_count or job.max_steps:
        slices = [s.slice for s in child.seen.slices]
        spent = sum(s.elapsed_s for s in slices)
        if not slices or not spent:
            return None
        if job.max_count:
            items = sum(s.items for s in slices)
            needs = max(needs, (job.max_count - items) * spent / items if items else job.max_time_s)
        if job.max_steps:
            steps = sum(s.steps for s in slices)
            needs = max(needs, (job.max_steps - steps) * spent / steps)
    return max(0.0, min(needs, job.max_time_s - gone))


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
