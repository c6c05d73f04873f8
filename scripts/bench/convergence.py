"""Loss curves of models that differ in their learning rates, trained one by one and as a fused array.

    python scripts/bench/convergence.py -o convergence                # ResNet-18 on images of 32x32, minutes on a GPU
    python scripts/bench/convergence.py --tiny -o convergence         # to see that it works: seconds on a CPU

All trainings start from the same weights, which are saved first, and read the same batches in the same order. So the
curves of a learning rate coincide if a fused array trains as single models do. A training of the first model is done
again: how far it is from itself shows what the order of sums on a GPU alone does.

The folder then holds `initial.pt` (the weights), `convergence.csv` (the loss of each model after each step) and
`convergence.png` (means over windows of steps; serial solid, fused dashed). The experiment is that of HFTA (Wang et al.
2021), whose learning rates are the defaults.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, convnet, on_tensors, subpixel
from benchsuite.report.show.axes import GREY, PALETTE, caption
from benchsuite.worker.precision import set_precision
from benchsuite.worker.step import Step
from benchsuite.worker.ways import array, make_step

SIZES = {"arch": "resnet18", "image_size": 32, "classes": 10, "batch_size": 128}
SEED = 1
AGAIN = "again"


@dataclass(frozen=True)
class Asked:
    """What to train.

    Attributes:
        rates: the learning rate of each model.
        window: steps of which a point of the plot is the mean.
    """

    rates: Sequence[float]
    steps: int
    window: int
    precision: str
    compile: str
    tiny: bool
    device: str

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and images. In fp64 a test can be strict."""
        return torch.float64 if self.tiny else torch.float32

    @property
    def words(self) -> str:
        """Model and precision, as a reader sees them."""
        return "subpixel at tiny sizes, fp64" if self.tiny else f"ResNet-18, {self.precision}"


def build(asked: Asked, rate: float) -> Workload:
    """The model with one learning rate."""
    torch.manual_seed(SEED)
    if asked.tiny:
        return subpixel.build(subpixel.Params(**subpixel.SMALL, lr=rate, seed=SEED))
    return convnet.build(convnet.Params(**SIZES, lr=rate, seed=SEED))


def started(asked: Asked, rate: float, initial: Path) -> Workload:
    """The model with one learning rate and the saved weights."""
    workload = build(asked, rate)
    for name, state in torch.load(initial, weights_only=True).items():
        workload.modules[name].load_state_dict(state)
        workload.modules[name].to(asked.dtype)
    return workload


def placed(tensor: Tensor, asked: Asked) -> Tensor:
    """The tensor on the device; images have the dtype of the weights."""
    return tensor.to(asked.device, asked.dtype if tensor.is_floating_point() else tensor.dtype)


def curve(step: Step, workload: Workload, asked: Asked) -> Tensor:
    """Train, and return the losses [steps, models] on the host."""
    found = []
    for batch in islice(workload.batches(Share(seed=SEED, device=asked.device)), asked.steps):
        step.run(on_tensors(lambda tensor: placed(tensor, asked), batch))
        found.append(step.losses[0].detach().reshape(-1).clone())
    step.check()
    return torch.stack(found).double().cpu()


def curves(asked: Asked, out: Path) -> dict[str, Tensor]:
    """The losses [steps] of each training, by name: `serial:RATE`, `fused:RATE`, `again:RATE`.

    Raises:
        ModelError: a loss is not finite.
    """
    initial = out / "initial.pt"
    torch.save({name: net.state_dict() for name, net in build(asked, asked.rates[0]).modules.items()}, initial)
    single = Training(precision=asked.precision, compile=asked.compile)  # type: ignore[arg-type]
    found: dict[str, Tensor] = {}
    for way, rate in [*(("serial", rate) for rate in asked.rates), (AGAIN, asked.rates[0])]:
        workload = started(asked, rate, initial)
        found[f"{way}:{rate:g}"] = curve(make_step(workload, single, asked.device), workload, asked)[:, 0]
    workloads = [started(asked, rate, initial) for rate in asked.rates]
    fused = Training(precision=asked.precision, compile=asked.compile, array=len(workloads))  # type: ignore[arg-type]
    losses = curve(array.make(workloads, fused, asked.device), workloads[0], asked)
    found |= {f"fused:{rate:g}": losses[:, model] for model, rate in enumerate(asked.rates)}
    if wrong := [name for name, of in found.items() if not torch.isfinite(of).all()]:
        raise ModelError(f"{wrong[0]}: a loss is not finite; lower the learning rate")
    return found


def windows(losses: Tensor, window: int) -> Tensor:
    """Means over windows of steps; the steps after the last whole window are left out."""
    return losses[: len(losses) // window * window].reshape(-1, window).mean(dim=1)


def apart(one: Tensor, other: Tensor, window: int) -> float:
    """The largest difference of two curves, as a share of the largest loss of the second one."""
    of = windows(other, window)
    return float((windows(one, window) - of).abs().max() / of.abs().max())


def differences(found: Mapping[str, Tensor], asked: Asked) -> dict[str, float]:
    """How far each curve is from the serial one with its learning rate."""
    return {
        name: apart(losses, found[f"serial:{name.partition(':')[2]}"], asked.window)
        for name, losses in found.items()
        if not name.startswith("serial")
    }


def plot(found: Mapping[str, Tensor], asked: Asked, where: str) -> Figure:
    """Loss over steps: a colour for each learning rate."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    for index, rate in enumerate(asked.rates):
        colour = PALETTE[index % len(PALETTE)]
        for way, dash, width in (("serial", "-", 3.2), ("fused", "--", 1.4)):
            values = windows(found[f"{way}:{rate:g}"], asked.window)
            at = [asked.window * (one + 1) for one in range(len(values))]
            alpha = 0.45 if way == "serial" else 1.0
            label = f"{way}, lr {rate:g}"
            axes.plot(at, values, dash, color=colour, linewidth=width, alpha=alpha, label=label)
    axes.set_xlabel("training steps")
    axes.set_ylabel(f"training loss, mean over {asked.window} steps")
    axes.grid(alpha=0.3, color=GREY)
    axes.legend(fontsize="small")
    worst = max(value for name, value in differences(found, asked).items() if name.startswith("fused"))
    notes = [f"{where}, {asked.words}. Largest difference of fused from serial: {worst:.2g} of the largest loss."]
    caption(figure, "Convergence: one by one, and as a fused array", notes)
    return figure


def main() -> None:
    """Train, write the files, and print how far the curves are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    parser.add_argument("--lr", default="0.002,0.001,0.0005", help="learning rates; default: %(default)s")
    parser.add_argument("--steps", type=int, default=2000, help="of each training; default: %(default)s")
    parser.add_argument("--window", type=int, default=100, help="steps that a point is the mean of; %(default)s")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "amp-fp16"])
    parser.add_argument("--compile", default="none", choices=["none", "default", "reduce-overhead"])
    parser.add_argument("--tiny", action="store_true", help="a small model to try the script with, in fp64")
    given = parser.parse_args()
    try:
        rates = [float(rate) for rate in given.lr.split(",")]
    except ValueError:
        parser.error(f"--lr: expected numbers, separated by commas; found {given.lr!r}")
    if len({f"{rate:g}" for rate in rates}) < max(2, len(rates)):
        parser.error("--lr: give at least two learning rates, each once")
    if given.tiny and given.precision != "fp32":
        parser.error("--precision: --tiny computes in fp64; leave one of them out")
    if not 1 <= given.window <= given.steps:
        parser.error("--window: give a number from 1 to that of --steps")
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    asked = Asked(rates, given.steps, given.window, given.precision, given.compile, given.tiny, device)
    given.output.mkdir(parents=True, exist_ok=True)
    set_precision(asked.precision, device)  # type: ignore[arg-type]
    where = f"{torch.cuda.get_device_name() if device != 'cpu' else 'CPU'}, torch {torch.__version__}"
    found = curves(asked, given.output)
    with (given.output / "convergence.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *found])
        writer.writerows([step + 1, *row] for step, row in enumerate(torch.stack([*found.values()], dim=1).tolist()))
    plot(found, asked, where).savefig(given.output / "convergence.png", dpi=150)
    print(f"{where}, {asked.words}, {asked.steps} steps; difference from serial as a share of the largest loss")
    for name, value in differences(found, asked).items():
        first, last = windows(found[name], asked.window)[[0, -1]].tolist()
        print(f"{name:16}{value:10.2g}   loss {first:.4g} to {last:.4g}")


if __name__ == "__main__":
    main()
