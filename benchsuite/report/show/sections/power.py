"""The machine score per watt of GPU power, as a figure of the score block."""

from __future__ import annotations

from benchsuite.report.format import number, whole
from benchsuite.report.show.document import Cell, Figure, Sentence, sentence
from benchsuite.report.stats.power import ScorePerWatt


def power_figure(found: ScorePerWatt) -> Figure:
    """The figure that `--power` adds; more is better."""
    beside: list[Sentence] = []
    if found.value is None:
        beside.append(sentence(f"none: {found.reason}", "warn"))
    else:
        rate = f"{number(found.machine)} / {whole(found.watts)} W of the GPUs in use, without the rest of the machine"
        beside.append(sentence(f"{rate} (more is better)"))
        if found.left_out:
            beside.append(sentence(f"without {', '.join(found.left_out)}, on the CPU", "quiet"))
    return Figure("Machine score / W", Cell(number(found.value), found.value), tuple(beside))
