"""The verdict on each node of a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchsuite.describe import cards
from benchsuite.describe.tasks import Gpu
from benchsuite.health.bases import base_of
from benchsuite.health.causes import (
    SLOWED_SHARE,
    Around,
    hottest_c,
    neighbour_words,
    neighbours,
    slowed_shares,
    slowed_words,
)
from benchsuite.health.judge import outcomes
from benchsuite.health.measured import CUT_SHORT, figures
from benchsuite.health.probes import is_probe, quick_jobs
from benchsuite.health.rules import Rules
from benchsuite.health.state import Watched, of_gpu, read_watched
from benchsuite.health.verdict import Node, Outcome, Ruling, Word, node_word
from benchsuite.records import Machine
from benchsuite.report.format import count, few
from benchsuite.report.read.load import Loaded, Row, load
from benchsuite.report.stats.summarise import summarise


def judge(folder: Path, rules: Rules, base: str | None = None) -> list[Node]:
    """Judge a run folder.

    Args:
        base: the run, summary or baseline to compare with.

    Raises:
        ResultError: the folder is no run, or the base is none.
        ProfileError: a file of cards is not valid.
    """
    return judge_loaded(load(folder), read_watched(folder), rules, base)


def judge_loaded(loaded: Loaded, watched: Watched | None, rules: Rules, base: str | None = None) -> list[Node]:
    """As `judge`, for a run folder that is read already."""
    default = loaded.machines[0].host if loaded.machines else "unknown host"
    hosts = dict.fromkeys(_host(row, default) for row in loaded.rows)
    # The states are those of the host on which `benchsuite health` ran.
    return [
        _node(replace(loaded, rows=_of(host, loaded, default)), host, watched if host == default else None, rules, base)
        for host in hosts
    ]


def _host(row: Row, default: str) -> str:
    return row.result.identity.host if row.result else default


def _of(host: str, loaded: Loaded, default: str) -> tuple[Row, ...]:
    return tuple(row for row in loaded.rows if _host(row, default) == host)


def _node(loaded: Loaded, host: str, watched: Watched | None, rules: Rules, base: str | None) -> Node:
    machine = next((m for m in loaded.machines if m.host == host), None)
    states = {facts.uuid: facts for facts in watched.after.gpus} if watched else {}
    names = {gpu.name for gpu in _gpus(loaded.rows)}
    keys = {name: known.name for name in names if (known := cards.find(name))}
    against = base_of(base, rules, summarise(loaded)) if base else None
    of_checks = outcomes(figures(loaded, rules), rules, against, Around(states, keys))
    found = [
        *_present(machine, watched),
        *of_checks,
        *([_not_compared(base, of_checks)] if base and not _is_compared(of_checks) else []),
        *_states(watched, rules),
        *_telemetry(loaded),
    ]
    word, reason = node_word(found, _needs_gpu(machine, watched, loaded, of_checks))
    if word in ("PASS", "WARN") and _gpus(loaded.rows) and (left := _not_probed(loaded)):
        reason = f"{reason}; not probed: {', '.join(few(left, 6))}"
    if word in ("PASS", "WARN") and (cut := sum(row.status in CUT_SHORT for row in loaded.rows)):
        reason = f"{reason}; stopped in a later pass: {count(cut, 'task')} without a result"
    gpus = tuple(gpu.uuid for gpu in _gpus(loaded.rows))
    return Node(host=host, word=word, reason=reason, folder=str(loaded.path), gpus=gpus, outcomes=tuple(found))


def _is_compared(found: Sequence[Outcome]) -> bool:
    return any(one.rule == "base" and one.word != "NOT RUN" for outcome in found for one in outcome.rulings)


def _not_compared(base: str, found: Sequence[Outcome]) -> Outcome:
    """A base without a figure that this run has, too: the user asks for a comparison, and there is none."""
    why = [one.reason for outcome in found for one in outcome.rulings if one.rule == "base"]
    reason = f"nothing was compared with {base}: {'; '.join(few(dict.fromkeys(why), 2)) or 'this run has no figures'}"
    outcome = _plain("base", "NOT RUN", reason, "")
    return msgspec.structs.replace(outcome, missing=True)


def _not_probed(loaded: Loaded) -> list[str]:
    """The jobs of the quick check that the run lacks; its verdict rests on the others alone."""
    return [name for name in quick_jobs() if not any(is_probe(row.task.job, name, True) for row in loaded.rows)]


def _needs_gpu(
    machine: Machine | None, watched: Watched | None, loaded: Loaded, found: Sequence[Outcome]
) -> str | None:
    """Why a node of which no GPU was judged is NOT RUN; None if it is to have none."""
    if watched and watched.expected_gpus == 0:
        return None
    note = machine.gpu_note if machine else None
    if machine and not machine.visible:
        return f"no GPU: {note or 'the run could use none'}; on a node without GPUs give --gpus 0"
    if not found:
        jobs = dict.fromkeys(row.task.job.name for row in loaded.rows)
        return f"no check is for its jobs ({', '.join(few(jobs, 4))}); run 'benchsuite health', or name them in --rules"
    return "no figure of a GPU could be judged: its card has no floors, and it has no peers and no --base"


def _gpus(rows: Sequence[Row]) -> list[Gpu]:
    found = {gpu.uuid: gpu for row in rows for gpu in row.task.gpus}
    return sorted(found.values(), key=lambda gpu: gpu.visible_index)


def _plain(
    check: str, word: Word, reason: str, command: str, gpu: Gpu | None = None, cause: str | None = None
) -> Outcome:
    return Outcome(
        check=check.replace(" ", "_"),
        title=check,
        place=f"GPU {gpu.visible_index}" if gpu else "node",
        uuids=(gpu.uuid,) if gpu else (),
        word=word,
        reason=reason,
        cause=cause,
        command=command,
        rulings=(Ruling(rule="state", word=word, reason=reason),),
    )


def _present(machine: Machine | None, watched: Watched | None) -> Iterator[Outcome]:
    """Whether the node has all its GPUs."""
    if machine is None:
        return
    expected, note = watched.expected_gpus if watched else None, machine.gpu_note or ""
    have = len(machine.visible)
    if expected is not None and have < expected:
        reason = f"{have} of {expected} GPUs can be used" + (f": {note}" if note else "")
        yield _plain(
            "GPUs", "FAIL", reason, "nvidia-smi -L", cause="a GPU that fell off the bus, or is hidden from the run"
        )
    elif "does not answer" in note:
        yield _plain("GPUs", "FAIL", note, "nvidia-smi -L", cause="a GPU that fell off the bus, or needs a reset")
    elif expected:
        yield _plain("GPUs", "PASS", f"{have} can be used", "nvidia-smi -L")


def _states(watched: Watched | None, rules: Rules) -> Iterator[Outcome]:
    if watched is None:
        return
    before = {facts.uuid: facts for facts in watched.before.gpus}
    for after in watched.after.gpus:
        yield from of_gpu(before.get(after.uuid, after), after, watched.after, rules)


def _telemetry(loaded: Loaded) -> Iterator[Outcome]:
    """What telemetry shows of each GPU over all probes: slow-downs by heat or hardware, and neighbours."""
    for gpu in _gpus(loaded.rows):
        yield _slowed(gpu, loaded.rows)
        if found := neighbours(loaded.rows, gpu.uuid):
            yield _plain("neighbours", "WARN", neighbour_words(found), f"nvidia-smi -i {gpu.uuid}", gpu)


def _slowed(gpu: Gpu, rows: Sequence[Row]) -> Outcome:
    show = f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {gpu.uuid}"
    shares = slowed_shares(rows, gpu.uuid)
    if shares is None:
        return _plain("slow-downs", "NOT RUN", "no sample shows the clock events", show, gpu)
    if not shares:
        return _plain("slow-downs", "PASS", "neither heat nor hardware slowed it down", show, gpu)
    word: Word = "FAIL" if sum(shares.values()) >= SLOWED_SHARE else "WARN"
    reason = slowed_words(shares, hottest_c(rows, gpu.uuid))
    cause = "cooling" if any("thermal" in name for name in shares) else "power supply or board"
    return _plain("slow-downs", word, reason, show, gpu, cause)
