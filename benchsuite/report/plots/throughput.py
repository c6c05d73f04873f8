"""Throughput over time, one panel for each job with a named line for each repeat and GPU; windows are shaded."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchsuite.errors import ResultError
from benchsuite.report.format import count, few, one_line
from benchsuite.report.read.curves import Curve, Panel
from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import rates_panels
from benchsuite.report.show.axes import DASHES, FAINT, LINE, MOST_NAMES, Look, caption, looks, paint, plain
from benchsuite.report.show.machine_name import plot_title, samples_words
from benchsuite.report.show.svg import short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

# More panels are too large to show.
_MOST_PANELS = 60
_NAMED = 20
_NEUTRAL = "#444444"


def draw(source: Source) -> Figure:
    """Rates of slices over seconds since `go`; a thick line is the mean over the window, and `hold` is dotted.

    Raises:
        ResultError: there is no folder, or no task in it has a slice.
    """
    loaded = source.folder()
    rows = [row for row in loaded.rows if source.task in (None, row.task.id)]
    drawn = rates_panels(rows)
    if not drawn:
        raise ResultError(f"{loaded.path}: no task has recorded a slice to plot")
    shown = sorted(drawn, key=_trouble)[:_MOST_PANELS] if len(drawn) > _MOST_PANELS else drawn
    columns = next(columns for columns, most in ((1, 3), (2, 10), (3, 24), (4, math.inf)) if len(shown) <= most)
    lines = math.ceil(len(shown) / columns)
    size = (1.8 + {1: 7.5, 2: 5.4}.get(columns, 4.4) * columns, 1.1 + (2.8 if columns == 1 else 2.3) * lines)
    figure = Figure(figsize=size, layout="constrained")
    all_axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    common = _common_looks([curve for panel in shown for curve in panel.curves])
    of_job = _by_job(rows)
    for axes, panel in zip(all_axes, shown, strict=False):
        _panel(axes, panel, of_job[panel.title], common)
    for axes in all_axes[len(shown) :]:
        axes.set_axis_off()
    handles = [*(common[1] if common else ()), *_keys(shown)]
    figure.legend(handles=handles, loc="outside right upper", fontsize="small", frameon=False)
    notes = [f"n: {samples_words(source.summary)}. {_scheme(common is not None)}", *_left_out(drawn, shown, of_job)]
    caption(figure, plot_title("Throughput", source.summary), notes)
    return figure


def _by_job(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.task.row].append(row)
    return found


def _place(curve: Curve) -> str:
    """The GPU of a curve, and its host and copy if it has several; groups of GPUs are one place."""
    task, result = curve.row.task, curve.row.result
    copy = f", copy {task.copy}" if task.job.processes > 1 else ""
    host = f" of {one_line(result.identity.host, 30)}" if result and task.job.placement.spanned > 1 else ""
    return f"{'several GPUs' if len(task.gpus) > 1 else curve.name}{host}{copy}"


def _repeat(curve: Curve) -> str:
    return f"repeat {curve.row.task.repeat}"


_Looks = tuple[Callable[[Curve], Look], list["Artist"]]


def _common_looks(curves: Sequence[Curve]) -> _Looks | None:
    """The looks of all panels with the entries of their legend; None if the lines are too many for one scheme.

    A colour is a GPU and the dashes are a repeat; with one line for each repeat in every panel, a colour is a repeat.
    """
    repeats = list(dict.fromkeys(map(_repeat, sorted(curves, key=lambda curve: curve.row.task.repeat))))
    places = sorted({_place(curve) for curve in curves})
    jobs: dict[tuple[str, str], int] = defaultdict(int)
    for curve in curves:
        jobs[curve.row.task.row, _repeat(curve)] += 1
    if max(jobs.values()) == 1 and len(repeats) <= MOST_NAMES:
        by_repeat = looks(repeats)
        return lambda curve: by_repeat[_repeat(curve)], _entries(by_repeat)
    if len(places) > MOST_NAMES or len(repeats) > len(DASHES):
        return None
    colours = {place: Look(look.colour, look.dash) for place, look in looks(places).items()}
    if len(repeats) == 1:
        return lambda curve: colours[_place(curve)], _entries(colours)
    dashes = {repeat: Look(_NEUTRAL, dash) for repeat, dash in zip(repeats, DASHES, strict=False)}
    both = [*_entries({place: Look(look.colour) for place, look in colours.items()}), *_entries(dashes)]
    if len({look.colour for look in colours.values()}) < len(places):
        return None
    return lambda curve: Look(colours[_place(curve)].colour, dashes[_repeat(curve)].dash), both


def _entries(look_of: dict[str, Look]) -> list[Artist]:
    return [_entry(name, look) for name, look in look_of.items()]


def _entry(name: str, look: Look) -> Artist:
    return Line2D([], [], color=look.colour, linestyle=look.dash, linewidth=LINE, label=name)


def _keys(panels: Sequence[Panel]) -> Iterator[Artist]:
    """The entries that explain shades and marks."""
    yield Line2D([], [], color=_NEUTRAL, linewidth=4, alpha=0.4, label="mean over\nthe window")
    yield Patch(color="0.5", alpha=0.2, linewidth=0, label="window")
    if any(curve.hold for panel in panels for curve in panel.curves):
        yield Line2D([], [], color=_NEUTRAL, linestyle=":", linewidth=LINE, label="not measured,\nwaits for others")


def _scheme(common: bool) -> str:
    if common:
        return "Each line is one task."
    return f"Each line is one task. Panels name up to {MOST_NAMES} lines, worst first; the others are grey."


def _panel(axes: Axes, panel: Panel, rows: Sequence[Row], common: _Looks | None) -> None:
    look_of, entries = common or _own_looks(panel)
    paint(axes, panel, look_of, [curve.window for curve in panel.curves if curve.window])
    means = []
    for curve in panel.curves:
        window = curve.row.window
        if curve.window and window and window.perf is not None:
            means.append(window.perf)
            colour = look_of(curve).colour
            axes.plot(curve.window, [window.perf] * 2, color=colour, linewidth=4, alpha=0.4, solid_capstyle="butt")
    plain(axes, one_line(panel.title, 40), loc="left")
    ok = sum(row.status == "ok" for row in rows)
    failed = f"{ok} of {len(rows)} ok" if ok < len(rows) else f"n = {len(rows)}"
    axes.set_title(f"{failed}{_mean(means)}", loc="right", fontsize="small", color="#B3261E" if ok < len(rows) else "k")
    if panel.beyond:
        axes.text(0.99, 0.97, panel.beyond, transform=axes.transAxes, ha="right", va="top", fontsize="x-small")
    axes.set_xlabel("seconds since the start of measuring", fontsize="small")
    axes.set_ylabel(one_line(panel.unit, 40), fontsize="small").set_parse_math(False)
    axes.tick_params(labelsize="small")
    axes.set_xlim(left=0)
    if common is None:
        axes.legend(handles=entries, fontsize="xx-small", loc="lower right", ncols=2)


def _mean(rates: Sequence[float]) -> str:
    if not rates:
        return ""
    mean = statistics.fmean(rates)
    std = f", std {100 * statistics.pstdev(rates) / mean:.1f} %" if len(rates) > 1 and mean else ""
    return f", mean {short(float(f'{mean:.3g}'))}{std}"


def _own_looks(panel: Panel) -> _Looks:
    """The looks of one panel: up to `MOST_NAMES` lines with names, the worst tasks first, and the others in grey."""
    rates = [curve.row.perf for curve in panel.curves if curve.row.perf]
    median = statistics.median(rates) if rates else 0.0

    def rank(curve: Curve) -> tuple[bool, bool, float]:
        window, perf = curve.row.window, curve.row.perf or 0.0
        return curve.row.status == "ok", bool(window and window.steady), -abs(perf - median)

    worst = sorted(panel.curves, key=rank)[:MOST_NAMES]
    look_of = dict(zip(map(id, worst), looks(map(str, range(len(worst)))).values(), strict=True))
    entries = [_entry(f"{_place(curve)}, {_repeat(curve)}", look_of[id(curve)]) for curve in worst]
    if others := len(panel.curves) - len(worst):
        entries.append(_entry(f"{others} others, nearer to the median", FAINT))
    return lambda curve: look_of.get(id(curve), FAINT), entries


def _trouble(panel: Panel) -> tuple[int, int]:
    """A sort key: panels with tasks that are not ok, then those with tasks that are not steady, come first."""
    rows = [curve.row for curve in panel.curves]
    return -sum(row.status != "ok" for row in rows), -sum(not (row.window and row.window.steady) for row in rows)


def _left_out(drawn: Sequence[Panel], shown: Sequence[Panel], of_job: dict[str, list[Row]]) -> Iterator[str]:
    """What the figure does not show, with the reason."""
    have = {id(curve.row) for panel in drawn for curve in panel.curves}
    missing = {job: [row for row in rows if id(row) not in have] for job, rows in of_job.items()}
    not_ok = {job: [row for row in rows if row.status != "ok" and id(row) in have] for job, rows in of_job.items()}
    for label, found in (("Without a line, no slice was measured", missing), ("Not ok, in no mean", not_ok)):
        if words := [_words(job, rows, len(of_job[job])) for job, rows in found.items() if rows]:
            yield f"{label}: {'; '.join(few(words, _NAMED))}."
    if len(shown) < len(drawn):
        names = [one_line(panel.title, 40) for panel in drawn if panel not in shown]
        yield f"{len(shown)} of {count(len(drawn), 'job')}, the worst first; left out: {', '.join(few(names, _NAMED))}."


def _words(job: str, rows: Sequence[Row], n: int) -> str:
    """ "vae, 2 of 3 tasks (failed: out of memory)"."""
    reasons = ((row.status, one_line(row.reason, 80)) for row in rows)
    why = "; ".join(dict.fromkeys(why if why.startswith(status) else f"{status}: {why}" for status, why in reasons))
    return f"{one_line(job, 40)}, {len(rows)} of {count(n, 'task')} ({one_line(why)})"
