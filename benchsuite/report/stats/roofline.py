"""The roofline of a GPU, and a job's place below it.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures"
(Communications of the ACM, 2009). The roof over an intensity of `i` FLOP/byte is the lower of the dense peak in the
format of the products and `i` times the bandwidth of the memory. Traffic is what the counters of the GPU record: a
share of the peak bandwidth, reads and writes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchsuite.describe import cards
from benchsuite.describe.cards import Format
from benchsuite.report.stats.mfu import Mfu, mfu

if TYPE_CHECKING:  # light to import: no scipy
    from benchsuite.report.read.summary import JobSummary

# Below this share of the bandwidth the counter's last digit (1 %) changes the intensity by a tenth or more.
LEAST_PERCENT = 5.0


@dataclass(frozen=True)
class RooflinePoint:
    """A job under the roof of its GPU.

    Attributes:
        card: name of the GPU.
        format: of the matrix products.
        intensity: model FLOPs for each byte of memory traffic.
        tflops: model TFLOP/s of one GPU.
        peak_tflops: dense peak in `format`.
        memory_gb_s: peak bandwidth of the memory.
    """

    card: str
    format: Format
    intensity: float
    tflops: float
    peak_tflops: float
    memory_gb_s: float

    @property
    def ridge(self) -> float:
        """The intensity from which the peak, and no longer the memory, is the roof."""
        return 1e3 * self.peak_tflops / self.memory_gb_s

    @property
    def roof_tflops(self) -> float:
        """The most that a GPU reaches at this intensity."""
        return min(self.peak_tflops, self.intensity * self.memory_gb_s / 1e3)

    @property
    def of_roof(self) -> float:
        """`tflops` as a share of the roof."""
        return self.tflops / self.roof_tflops

    @property
    def roof(self) -> Literal["memory", "compute"]:
        """What the roof is made of at this intensity."""
        return "memory" if self.intensity < self.ridge else "compute"


def roofline(job: JobSummary, found: Mfu | None = None) -> RooflinePoint | None:
    """The place of a job; None if its FLOPs, its GPU's peaks or its memory traffic are not known.

    The counters of a GPU know no processes. So a job whose copies share a GPU as processes has no place.

    Args:
        found: the job's MFU, if it is known already.

    Raises:
        ProfileError: a file of the table of cards is not valid.
    """
    if job.settings.get("copies", 1) != 1 and job.settings.get("sharing") != "fused":
        return None
    found = found or mfu(job)
    percent = job.use.dram_percent if job.use else None
    if not found.value or not found.tflops or found.peak_tflops is None or found.format is None:
        return None
    if percent is None or percent < LEAST_PERCENT:
        return None
    card = cards.find(job.gpu_names[0])
    if card is None or card.card.memory_gb_s is None:
        return None
    gb_s = card.card.memory_gb_s
    intensity = 1e3 * found.tflops / (gb_s * percent / 100)
    return RooflinePoint(job.gpu_names[0], found.format, intensity, found.tflops, found.peak_tflops, gb_s)
