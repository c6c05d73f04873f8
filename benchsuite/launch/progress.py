"""Show people on stderr how a run goes: by a live table on a terminal, by one line a task elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from benchsuite.describe.tasks import Task
from benchsuite.errors import one_line
from benchsuite.launch.forecast import Forecast, in_words
from benchsuite.launch.working import Working
from benchsuite.records import FAILURES, Result
from benchsuite.rundir import RunDir

# The table is drawn as often as this, and by no thread of its own, which would draw on while the parent sleeps.
DRAW_EVERY_S = 0.25
Shown = TypeVar("Shown", bound="LiveDisplay")
_STYLES = {"ok": "green", "skipped": "yellow", "interrupted": "yellow"}


class Verdict(Protocol):
    """What a report will say about a result: in words, and whether it has a figure."""

    @property
    def words(self) -> str: ...
    @property
    def has_figure(self) -> bool: ...


def no_warnings(tasks: Sequence[Task]) -> Sequence[str]:
    """No warnings about any task."""
    return ()


class Display(Console):
    """A console on stderr. It goes silent if its reader is gone, since the work must go on without it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(stderr=True, **options)

    def on_broken_pipe(self) -> None:
        self.quiet = True  # rich would exit with 1


class LiveDisplay:
    """Lines on a console and, on a terminal, a picture below them that changes while the work goes on.

    All of it does nothing once the terminal is gone: the work must not end with it.

    Args:
        first: the picture at the start.
        console: None for a `Display`.

    Attributes:
        live: whether a picture is shown now.
    """

    def __init__(self, first: str, console: Console | None = None) -> None:
        self.console = console or Display(soft_wrap=True, highlight=False)
        self._first = first
        self._live: Live | None = None

    @property
    def live(self) -> bool:
        return self._live is not None

    def __enter__(self: Shown) -> Shown:
        if self.console.is_terminal:
            self._live = Live(self._first, console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                self._live.stop()

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line of plain text."""
        self.print(escape(one_line(line)), style)

    def print(self, markup: str, style: str | None = None) -> None:
        """Print a text with the markup of rich."""
        with contextlib.suppress(OSError):
            self.console.print(markup, style=style)

    def picture(self, shown: RenderableType) -> None:
        """Replace the picture, if one is shown."""
        if self._live:
            with contextlib.suppress(OSError):
                self._live.update(shown, refresh=True)


class Progress(LiveDisplay):
    """An observer that shows on a console how a run goes.

    Args:
        verdict: judges an ok result.
        keep: called with each result.
        settled: task id -> status, for the tasks that an earlier invocation of the run finished. A new attempt at
            such a task does not count.
        foresee: the warnings about tasks that have not started, a line each.
        logs_stay: the logs of the tasks outlive the run, so that a failure can name its own.

    Attributes:
        counts: the number of tasks of each status.
        problems: why results could not be written.
        over: the number of results so far.
        thin: the number of ok tasks without a figure.
    """

    def __init__(
        self,
        verdict: Callable[[Result], Verdict],
        keep: Callable[[Result], None] | None = None,
        settled: Mapping[str, str] | None = None,
        console: Console | None = None,
        foresee: Callable[[Sequence[Task]], Sequence[str]] = no_warnings,
        logs_stay: bool = True,
    ) -> None:
        super().__init__("starting", console)
        self.settled = dict(settled or {})
        self.counts: Counter[str] = Counter(self.settled.values())
        self.problems: list[str] = []
        self.tasks: Sequence[Task] = ()
        self.over = self.thin = 0
        self._verdict = verdict
        self._keep = keep
        self._foresee = foresee
        self._logs_stay = logs_stay
        self._noted: set[tuple[str, str]] = set()
        self._forecast = Forecast()
        self._wave: tuple[str, float] | None = None
        self._draw_due_s = 0.0

    @property
    def total(self) -> int:
        """The number of tasks of the whole run, with those of earlier invocations; 0 before the run begins."""
        return len({*self.settled, *(task.id for task in self.tasks)})

    def begin(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        for line in self._foresee(tasks):
            self.say(line, "yellow")
        if len(tasks) > 1:
            self.print(f"{len(tasks)} tasks, {in_words(self._forecast.bounds_s(tasks))}")

    def added(self, tasks: Sequence[Task]) -> None:
        self.tasks = [*self.tasks, *tasks]

    def wave(self, tasks: Sequence[Task]) -> None:
        now = time.monotonic()
        if self._wave:
            self._forecast.learn(self._wave[0], now - self._wave[1])
        self._wave = tasks[0].cell, now
        if self.live:
            self.picture(f"{escape(tasks[0].cell)}: preparing")
        else:
            places = ", ".join(t.device for t in tasks)
            self.print(f"{escape(tasks[0].cell)} on {places}: starting")

    def look(self, children: Sequence[Working]) -> None:
        if self.live and (now_s := time.monotonic()) >= self._draw_due_s:
            self._draw_due_s = now_s + DRAW_EVERY_S
            self.picture(self._table(children))

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        task, self.over = result.task, self.over + 1
        verdict = self._verdict(result) if result.status == "ok" else None
        words = verdict.words if verdict else result.error.words if result.error else ""
        if task.id not in self.settled:
            self.counts[result.status if path or result.status == "interrupted" else "lost"] += 1
            self.thin += path is not None and verdict is not None and not verdict.has_figure
        if problem:
            self.problems.append(problem)
        style = _STYLES.get(result.status, "red")
        line = f"[{self.over}/{len(self.tasks)}] {task.cell} on {task.device}, repeat {task.repeat}"
        first = one_line(words.strip().splitlines()[0]) if words.strip() else ""
        log = _log(result, path.parent) if path and self._logs_stay and result.status in FAILURES else None
        where = f"; log: {one_line(str(log))}" if log else ""
        self.print(f"{escape(one_line(line))}: [{style}]{result.status}[/{style}] {escape(first + where)}")
        for note in dict.fromkeys(note for stream in result.measurement.streams for note in stream.notes):
            if (task.cell, note) not in self._noted:
                self._noted.add((task.cell, note))
                self.say(f"{task.cell}: note: {note}", "yellow")
        if problem:
            self.say(problem, "red")
        if self._keep:
            self._keep(result)

    def _table(self, children: Sequence[Working]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("job", "on", "state", "rate", "left"):
            table.add_column(heading, justify="right" if heading in ("rate", "left") else "left", no_wrap=True)
        now = time.monotonic()
        for child in children:
            unit = child.seen.ready.unit if child.seen.ready else "item"
            rate = _rate(child)
            shown = f"{_short(rate)} {one_line(unit)}/s" if rate is not None else ""
            table.add_row(
                escape(child.task.cell), child.task.device, _state(child, now), shown, _clock(left_s(child, now))
            )
        after = self.tasks[self.over + len(children) :]
        begun = [left for c in children if (left := left_s(c, now)) is not None]
        to_begin = [c.task for c in children if left_s(c, now) is None]
        least, most = self._forecast.bounds_s([*to_begin, *after])
        running_s = max(begun, default=0.0)
        rest = in_words((least + running_s, most + running_s))
        table.caption = f"{self.over} of {len(self.tasks)} tasks done, {len(after)} waiting, {rest} left"
        table.caption_justify = "left"
        return table


def _log(result: Result, folder: Path) -> Path | None:
    """What the task of a result printed on stderr, or else its preparation; None if neither printed anything."""
    logs = (RunDir(folder).log(result.task, result.identity.attempt, what) for what in ("err", "prepare"))
    return next((log for log in logs if log.is_file() and log.stat().st_size), None)


def _rate(child: Working) -> float | None:
    if not child.seen.slices:
        return None
    last = child.seen.slices[-1].slice  # of rank 0; the others that count process as many items
    return _counting(child) * last.items / last.elapsed_s if last.elapsed_s > 0 else None


def _counting(child: Working) -> int:
    """The ranks whose items count."""
    return sum(rank.ready is None or rank.ready.counts_items for rank in child.seen.ranks)


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _state(child: Working, now_s: float) -> str:
    """What a task does; while nothing can be measured yet, with the seconds since its start."""
    since = f"{now_s - child.started_s:.0f} s"
    if child.go_s is None:
        return f"waiting for others, {since}" if child.seen.ready else f"loading and warming up, {since}"
    return "holding" if child.seen.measured else "measuring"


def left_s(child: Working, now_s: float) -> float | None:
    """Seconds until a task's stop rule is met at its present rate; None as long as that is unknown."""
    if child.go_s is None:
        return None
    job, gone = child.task.job, now_s - child.go_s
    if job.by_epochs:
        ended = len(child.seen.ranks[0].epochs)  # a resumed training has fewer to go than this reckons with
        return (job.max_epochs - ended) * gone / ended if job.max_epochs and ended else None
    needs = job.min_time_s - gone
    if job.max_count or job.max_steps:
        slices = [s.slice for s in child.seen.slices]
        spent = sum(s.elapsed_s for s in slices)
        if not slices or not spent:
            return None
        if job.max_count:
            items = sum(s.items for s in slices) * _counting(child)
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
