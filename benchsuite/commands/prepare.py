"""`benchsuite prepare`: download or generate data sets, and check those that are there."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, cast

import click

from benchsuite.commands import completion
from benchsuite.commands._examples import WithExamples
from benchsuite.errors import Interrupted, UsageError, one_line

if TYPE_CHECKING:
    from rich.progress import Progress

    from benchsuite.data.bring import Request
    from benchsuite.data.descriptor import DataSet, Size

_EVERY_S = 10.0


_EXAMPLES = (
    ("benchsuite prepare --profile standard", "Download the data sets of a profile."),
    (
        "benchsuite prepare --profile standard --synthetic --size small",
        "Generate small data of the same formats, without a network.",
    ),
    ("benchsuite prepare imagenet_tfrecord --from /mnt/imagenet --workers 16", "Convert your own files."),
    ("benchsuite prepare mnist --verify", "Check every byte of a data set."),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.datasets)
@click.option("--profile", metavar="NAME", shell_complete=completion.profiles, help="Data sets of this profile's jobs.")
@click.option("-d", "--data", metavar="DIR", help="Their folder.  [default: $BENCHSUITE_DATA, else data]")
@click.option("--synthetic", is_flag=True, help="Generate data of the same formats; no network needed.")
@click.option("--size", type=click.Choice(["small", "full"]), help="Of generated data.  [default: full]")
@click.option("--from", "own", metavar="DIR", help="Your own files: DIR/train/CLASS/*.jpg, DIR/val/CLASS/*.jpg.")
@click.option("--verify", is_flag=True, help="Check every byte of the data sets; prepare nothing.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: the usable CPUs]")
def command(
    names: tuple[str, ...],
    profile: str | None,
    data: str | None,
    synthetic: bool,
    size: str | None,
    own: str | None,
    verify: bool,
    workers: int | None,
) -> int:
    """Download or generate data sets.

    NAME is a shipped data set, or a descriptor file, such as a copy with a mirror of your own. Without a name all data
    sets are prepared. A data set that is ready stays as it is. Run the same command again to continue after an
    interruption. The exit status is 0 if all are ready, else 1.

    Data sets that may not be downloaded are made of your own files, with --from. The files are linked, or copied from
    another file system. For imagenet_tfrecord they are written to shards of TFRecord, unless DIR holds shards.
    """
    from benchsuite.data.bring import Request
    from benchsuite.data.descriptor import load
    from benchsuite.data.synthetic import usable_cpus

    if data == "":
        raise UsageError("-d: name a folder")
    root = Path(data or os.environ.get("BENCHSUITE_DATA") or "data").absolute()
    chosen = [load(name) for name in _names(names, profile)]
    if verify and not names and not profile:  # without names, only the data sets that exist are verified
        chosen = [found for found in chosen if (root / found.name).exists()]
        if not chosen:
            raise UsageError(f"{root}: holds no data set to verify; name its folder with -d")
    if own is not None:
        _check_own(own, chosen, alone=not (synthetic or size or verify))
    folder = Path(own).absolute() if own else None
    request = Request(synthetic, cast("Size", size or "full"), workers or usable_cpus(), folder)
    real = [found.name for found in chosen if request.real(found)]
    if size == "small" and real and not verify:
        raise UsageError(f"--size small: real data have one size ({', '.join(real)}); add --synthetic")
    with _signals():
        bad = sum([not (_verify(root, found) if verify else _bring(root, found, request)) for found in chosen])
    if len(chosen) > 1:
        click.echo(f"{len(chosen) - bad} of {len(chosen)} data sets are ready below {root}", err=True)
    return 1 if bad else 0


def _check_own(own: str, chosen: list[DataSet], *, alone: bool) -> None:
    if not alone:
        raise UsageError("--from takes real files: leave out --synthetic, --size and --verify")
    if len(chosen) != 1 or not own:
        raise UsageError("--from: give one data set and the folder of its files")
    if not chosen[0].about.supplied:
        raise UsageError(f"--from: {chosen[0].name} takes no files of your own; leave --from out")


def _names(names: tuple[str, ...], profile: str | None) -> list[str]:
    from benchsuite.data import descriptor

    if names and profile:
        raise UsageError("give names of data sets, or --profile, not both")
    if profile is None:
        return list(dict.fromkeys(names or descriptor.names()))
    from benchsuite.describe import profile as profiles

    wanted = dict.fromkeys(job.data for job in profiles.load(profile).jobs if job.data)
    if not wanted:
        click.echo(f"{profile}: no job needs a data set", err=True)
    return list(wanted)


def _bring(root: Path, data: DataSet, request: Request) -> bool:
    from benchsuite.data import DataError, store
    from benchsuite.data.bring import bring

    with _Shown(data.name) as shown:
        try:
            found = bring(root, data, request, shown)
        except DataError as error:
            shown.say(str(error) if str(error).startswith(data.name) else f"not ready: {error}")
            return False
        except Interrupted:
            shown.say("interrupted; run the same command again to continue")
            raise
    held = "real" if found.real else f"synthetic, {found.size}"
    size = store.human(found.size_bytes)
    click.echo(f"{data.name}: ready: {held}, {found.files:,} files, {size}, sha256 {found.sha256[:16]}, {found.path}")
    return True


def _verify(root: Path, data: DataSet) -> bool:
    from benchsuite.data import store

    with _Shown(data.name) as shown:
        report = shown.stage("reading every byte", "bytes")
        found = store.look(root, data, every_byte=lambda count: report(count, None))
        if found.state == "damaged" and found.ours:
            with suppress(OSError, ValueError):  # a damaged marker or manifest is found without this note
                store.condemn(root, data.name, found.reason)
    if found.prepared is None:
        click.echo(f"{data.name}: {found.state}: {one_line(found.reason)}; bring it with '{found.command}'", err=True)
        return False
    click.echo(f"{data.name}: ready: {found.reason}, no byte has changed")
    return True


@contextmanager
def _signals() -> Iterator[None]:
    """Raise `Interrupted` on SIGINT, SIGTERM and SIGHUP, even during a read that waits for a server.

    Signals after the first are ignored, since they would interrupt the clean-up.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(signum)

    asked = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = {s: handler for s in asked if (handler := signal.getsignal(s)) is not signal.SIG_IGN}
    for signum in before:
        signal.signal(signum, end)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class _Shown:
    """Shows the progress of one data set: a bar on a terminal, else a line every `_EVERY_S` seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bars: Progress | None = None

    def __enter__(self) -> _Shown:
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()
            self._bars = None

    def say(self, line: str) -> None:
        text = f"{self._name}: {one_line(line.removeprefix(f'{self._name}: '))}"
        if self._bars:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(text, err=True)

    def stage(self, what: str, unit: Literal["bytes", "units", "pairs", "files"]) -> Callable[[int, int | None], None]:
        if self._bars:
            bars, task = self._bars, self._bars.add_task(f"{self._name}: {what}", total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)
        said_s = time.monotonic()
        self.say(what)

        def report(done: int, total: int | None) -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= _EVERY_S:
                said_s = time.monotonic()
                self.say(f"{what}: {_amount(done, total, unit)}")

        return report


def _amount(done: int, total: int | None, unit: str) -> str:
    from benchsuite.data.store import human

    share = f" ({done / total:.0%})" if total else ""
    return (human(done) if unit == "bytes" else f"{done:,} {unit}") + share


def _bars() -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from benchsuite.launch.progress import Display

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Display(), transient=True)
