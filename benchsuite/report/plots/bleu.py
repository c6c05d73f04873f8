"""BLEU over the epochs of each task, from the scores that `benchsuite bleu` has written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchsuite.bleu_scores import Bleu, path_in
from benchsuite.errors import ResultError
from benchsuite.report.format import one_line
from benchsuite.report.show.axes import GREY, LINE, caption, looks, plain
from benchsuite.rundir import read_record

if TYPE_CHECKING:
    from benchsuite.report.plots import Source


def draw(source: Source) -> Figure:
    """One line for each task.

    Raises:
        ResultError: the run folder holds no scores.
    """
    if source.path is None or not path_in(source.path).is_file():
        where = source.path or source.summary.source
        raise ResultError(f"{where}: no BLEU scores here; make them with 'benchsuite bleu RUN'")
    return curves(read_record(path_in(source.path), Bleu), source.path)


def curves(scores: Bleu, run: Path) -> Figure:
    """The figure of some scores; `run` is the folder that the title names."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    look = looks(task.task for task in scores.tasks)
    for task in scores.tasks:
        of = look[task.task]
        epochs, values = [one.epoch for one in task.epochs], [one.bleu for one in task.epochs]
        label = one_line(task.task, 40)
        axes.plot(epochs, values, of.dash, marker="o", markersize=3.5, linewidth=LINE, color=of.colour, label=label)
    plain(axes, "BLEU", loc="left", fontsize="medium")
    axes.set_xlabel("epoch")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3, color=GREY)
    for text in axes.legend(fontsize="small").get_texts():
        text.set_parse_math(False)
    tests = ", ".join(dict.fromkeys(f"{one.test_set} ({one.sentences:,} sentences)" for one in scores.tasks))
    notes = [f"{one_line(tests)}. Beam {scores.beam}, sacrebleu {scores.signature}."]
    caption(figure, f"BLEU of {one_line(run.name)}", notes)
    return figure
