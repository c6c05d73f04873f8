"""`benchsuite bleu`: how well the checkpoints of a translator translate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._examples import WithExamples
from benchsuite.commands._picture import check_picture, draw

if TYPE_CHECKING:
    from benchsuite.bleu_scores import TaskBleu
    from benchsuite.describe.tasks import Task
    from benchsuite.models.translation.beam import Search
    from benchsuite.models.translation.corpus import TestSet
    from benchsuite.models.translation.evaluation import Scored
    from benchsuite.rundir import RunDir

_AT_LEAST_1 = click.IntRange(min=1)


_EXAMPLES = (
    ("benchsuite bleu results/gnmt-20260105-101500", "Score all checkpoints of a run."),
    (
        "benchsuite bleu results/gnmt-20260105-101500 --task gnmt.J0 -o bleu.png",
        "Score one task, and draw its BLEU over the epochs.",
    ),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: the folder that RUN read]")
@click.option("--task", "chosen", metavar="ID", help="Score only this task, such as gnmt.J0.")
@click.option(
    "--beam", metavar="N", type=_AT_LEAST_1, default=5, show_default=True, help="Hypotheses kept of each sentence."
)
@click.option(
    "--max-length", metavar="N", type=_AT_LEAST_1, default=80, show_default=True, help="Units of a translation at most."
)
@click.option(
    "--batch-size", metavar="N", type=_AT_LEAST_1, default=128, show_default=True, help="Sentences translated at once."
)
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.  [default: cuda if there is a GPU]")
@click.option("-o", "--output", metavar="FILE", help="A new .png, .svg or .pdf file with BLEU over the epochs.")
def command(
    run: Path,
    data: str | None,
    chosen: str | None,
    beam: int,
    max_length: int,
    batch_size: int,
    device: str | None,
    output: str | None,
) -> None:
    """Translate the test set with each checkpoint of a run, and score the translations.

    RUN is the folder of a run whose jobs train a translator by epochs. The scores go to bleu/scores.json in it.
    """
    from benchsuite.bleu_scores import Bleu, path_in
    from benchsuite.errors import OutputError, one_line, reason
    from benchsuite.models.translation.beam import Search
    from benchsuite.models.translation.evaluation import check_installed, device_of
    from benchsuite.rundir import RunDir
    from benchsuite.schema import to_json
    from benchsuite.writing import replace

    target = Path(output) if output else None
    if target:
        check_picture(target, "-o")
    check_installed()
    folder, how, device = RunDir(run), Search(beam=beam, max_length=max_length), device_of(device)
    tasks, signature = [], ""
    for task, attempt in _trained(folder, chosen):
        found, signature = _scored(folder, task, attempt, data, how, batch_size, device)
        tasks.append(found)
    scores = Bleu(
        signature=signature,
        beam=beam,
        max_length=max_length,
        alpha=how.alpha,
        beta=how.beta,
        device=device,
        tasks=tuple(tasks),
    )
    try:
        replace(path_in(run), to_json(scores, indent=2))
    except OSError as error:
        raise OutputError(f"{path_in(run)}: cannot be written: {reason(error)}") from None
    click.echo(f"benchsuite: scores written to {one_line(str(path_in(run)))}", err=True)
    if target:
        from benchsuite.report.plots.bleu import curves

        draw(curves(scores, run), target, "-o")
        click.echo(f"benchsuite: plot written to {one_line(str(target))}", err=True)


def _trained(folder: RunDir, chosen: str | None) -> list[tuple[Task, int]]:
    """The tasks that have checkpoints of a translator, each with its latest attempt that has some.

    Raises:
        ResultError: there is no such task.
    """
    from benchsuite.describe.goal import TRANSLATORS
    from benchsuite.errors import ResultError, nearest
    from benchsuite.worker.saved import epochs_of

    tasks = folder.plan().tasks
    if chosen is not None and chosen not in (ids := [task.id for task in tasks]):
        raise ResultError(f"{folder.path}: no task '{chosen}'{nearest(chosen, ids[:50])}")
    found = []
    for task in tasks:
        if task.job.model not in TRANSLATORS or (chosen or task.id) != task.id:
            continue
        attempts = [n for n in folder.started(task) if epochs_of(str(folder.checkpoints(task, n)))]
        found += [(task, attempts[-1])] if attempts else []
    if not found:
        remedy = "train one with 'max_epochs', 'epoch_items' and 'data'"
        raise ResultError(f"{folder.path}: no checkpoints of {', '.join(TRANSLATORS)} here; {remedy}")
    return found


def _scored(
    folder: RunDir, task: Task, attempt: int, data: str | None, how: Search, batch_size: int, device: str
) -> tuple[TaskBleu, str]:
    """The BLEU of each epoch of a task, with its signature. A line for each is printed as it is there.

    Raises:
        ModelError: a checkpoint is damaged, or does not fit.
        OutputError: the translations cannot be written.
    """
    from benchsuite.bleu_scores import BleuEpoch, TaskBleu
    from benchsuite.describe.goal import EPOCH
    from benchsuite.models.translation.evaluation import evaluated
    from benchsuite.report.format import count
    from benchsuite.worker import saved

    test, prefix = _test_set(task, data), str(folder.checkpoints(task, attempt))
    click.echo(f"{task.id}: {test.name}, {count(len(test.sources), 'sentence')}, beam {how.beam}, on {device}")
    click.echo("epoch   BLEU  seconds")
    epochs, signature = [], ""
    for epoch in saved.epochs_of(prefix):
        found = saved.read(f"{prefix}{EPOCH}{epoch}")
        scored = evaluated(found.model, found.params, found.content["modules"], test, device, how, batch_size)
        kept = _kept(folder, Path(prefix).name, epoch, scored)
        epochs.append(BleuEpoch(epoch=epoch, bleu=scored.bleu, elapsed_s=scored.elapsed_s, translations=kept))
        click.echo(f"{epoch:5d}  {scored.bleu:5.2f}  {scored.elapsed_s:7.1f}")
        signature = scored.signature
    click.echo(f"sacrebleu: {signature}")
    whole = TaskBleu(
        task=task.id,
        attempt=attempt,
        model=task.job.model or "",
        test_set=test.name,
        sentences=len(test.sources),
        epochs=tuple(epochs),
    )
    return whole, signature


def _test_set(task: Task, data: str | None) -> TestSet:
    """The test set of the data that a task was trained on.

    Raises:
        UsageError: the task read no data set, or it is not there.
    """
    from benchsuite.data import DataError, store
    from benchsuite.errors import UsageError
    from benchsuite.launch.datasets import folder_of
    from benchsuite.models.translation.corpus import test_set

    if task.job.data is None:
        raise UsageError(f"{task.id}: it was trained on generated pairs, which have no test set; train it with 'data'")
    root = data or task.data_root
    try:
        return test_set(folder_of(store.find(Path(root) if root else None, task.job.data)))
    except DataError as error:
        raise UsageError(f"{error}; or name its folder with -d") from None


def _kept(folder: RunDir, name: str, epoch: int, scored: Scored) -> str:
    """Write the translations; their file in the run folder."""
    from benchsuite.describe.goal import EPOCH
    from benchsuite.errors import OutputError, reason
    from benchsuite.writing import replace

    file = Path("bleu") / f"{name}{EPOCH}{epoch}.txt"
    try:
        (folder.path / "bleu").mkdir(exist_ok=True)
        replace(folder.path / file, "".join(f"{line}\n" for line in scored.translations).encode())
    except OSError as error:
        raise OutputError(f"{folder.path / file}: cannot be written: {reason(error)}") from None
    return str(file)
