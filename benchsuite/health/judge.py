"""Judge the figures of a node by all rules: floor, peer, base, and what a reading may say at most."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from benchsuite.describe.command_line import command_line
from benchsuite.describe.tasks import Task
from benchsuite.health.bases import Base
from benchsuite.health.causes import Around, cause_of, neighbour_words, neighbours
from benchsuite.health.deviation import Decided, Deviation, decide, from_base, from_links, from_peers
from benchsuite.health.measured import Found, Gap, Measured, Place, ended, place_of
from benchsuite.health.rules import Check, Rules, Tolerance
from benchsuite.health.verdict import Outcome, Ruling, Word, judged
from benchsuite.report.format import number, one_line, percent
from benchsuite.report.read.load import Row

# From this number on, bad links that share a GPU point at the GPU.
_SHARING = 3


@dataclass
class _Figure:
    """A figure with what its rules say so far."""

    measured: Measured
    check: Check
    rulings: list[Ruling] = field(default_factory=list)

    @property
    def middle(self) -> float:
        """The median over repeats."""
        values = sorted(self.measured.values)
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2

    @property
    def worst(self) -> float:
        """The worst of all repeats."""
        return min(self.measured.values) if self.check.better == "higher" else max(self.measured.values)


@dataclass(frozen=True)
class _Test:
    """A comparison with peers or a base, which is decided within its family."""

    figure: _Figure
    rule: Literal["peer", "base"]
    deviation: Deviation
    tolerance: Tolerance


def outcomes(found: Found, rules: Rules, base: Base | None, around: Around) -> list[Outcome]:
    """An outcome for each check and place, in the order of the rules; failed tasks come first."""
    figures = [_Figure(measured, rules.checks[measured.check]) for measured in found.measured]
    tests: list[_Test] = []
    for figure in figures:
        figure.rulings += _absolute(figure, rules, around)
    by_check: dict[str, list[_Figure]] = defaultdict(list)
    for figure in figures:
        by_check[figure.measured.check].append(figure)
    for name, of_check in by_check.items():
        for kind in ("peer", "base"):
            if kind in rules.checks[name].against:
                compare = _against_peers if kind == "peer" else _against_base
                tests += compare(of_check, rules.tolerance(name), base)
    decided = decide([(test.deviation, test.tolerance) for test in tests])
    for test, word in zip(tests, decided, strict=True):
        test.figure.rulings.append(_compared(test, word))
    ran = [_failed(row) for row in found.failed]
    tasks = {figure.measured.rows[0].task.id: figure.measured.rows[0].task for figure in figures}
    commands = {name: shows(task) for name, task in tasks.items()}
    done = [_outcome(figure, by_check[figure.measured.check], rules, around, commands) for figure in figures]
    return [*ran, *_shared_ends(done), *(_gap(gap, rules) for gap in found.gaps)]


# --- the rules


def _absolute(figure: _Figure, rules: Rules, around: Around) -> Iterator[Ruling]:
    """Floor, `most` and `expect`: what needs no other figure."""
    check, measured = figure.check, figure.measured
    if check.expect is not None:
        bad = [word for word in measured.said if word != check.expect]
        said = bad[0] if bad else check.expect
        yield Ruling(rule="expect", word="FAIL" if bad else "PASS", value=said, reason=f"'{check.expect}' is expected")
    if not measured.values:
        return
    if check.most is not None:
        most = max(measured.values)
        reason = f"at most {number(check.most) if check.most else '0'} is right"
        word: Word = "FAIL" if most > check.most else "PASS"
        yield Ruling(rule="most", word=word, value=most, threshold=check.most, reason=reason)
    if check.against and figure.worst <= 0:
        yield Ruling(rule="floor", word="FAIL", value=figure.worst, threshold=0.0, reason="0 is a fault on any card")
    if check.against:
        yield _floor(figure, rules, around)


def _floor(figure: _Figure, rules: Rules, around: Around) -> Ruling:
    gpus = figure.measured.rows[0].task.gpus
    if not gpus:
        return Ruling(rule="floor", word="NOT RUN", reason="no floor is known for hosts; compare with --base")
    names = {gpu.name for gpu in figure.measured.place.gpus or gpus}
    instances = [gpu for gpu in gpus if gpu.parent]
    card = around.cards.get(next(iter(names))) if len(names) == 1 and not instances else None
    floor = rules.floor(figure.measured.check, card, len(gpus))
    if floor is None:
        on = f" on {len(gpus)} GPUs" if len(gpus) > 1 else ""
        return Ruling(rule="floor", word="NOT RUN", reason=f"no floor is known for {' and '.join(sorted(names))}{on}")
    limit, value = floor.limit(figure.check.better), figure.worst
    bad = value < limit if figure.check.better == "higher" else value > limit
    kind, side = ("floor", "less") if figure.check.better == "higher" else ("ceiling", "plus")
    margin = f" ({number(floor.reference)} {side} {percent(floor.margin, 0)})" if floor.margin else ""
    reason = f"{kind} {number(limit)}{margin}"
    word: Word = "FAIL" if bad else "PASS"
    return Ruling(rule="floor", word=word, value=value, threshold=limit, reason=reason, source=floor.source)


def _against_peers(figures: Sequence[_Figure], tolerance: Tolerance, base: Base | None) -> Iterator[_Test]:
    """Figures of GPUs of one model, or of links, against each other."""
    groups: dict[object, list[_Figure]] = defaultdict(list)
    for figure in figures:
        if figure.measured.values:
            place = figure.measured.place
            groups[place.arrow, frozenset(gpu.name for gpu in place.gpus)].append(figure)
    for group in groups.values():
        links = bool(group[0].measured.place.arrow)
        found = _deviations(group, tolerance.spread, links)
        for figure, deviation in zip(group, found, strict=True):
            if deviation:
                yield _Test(figure, "peer", deviation, tolerance)
            else:
                why = f"there is no other {'link' if links else 'GPU of its model'} to compare with"
                figure.rulings.append(Ruling(rule="peer", word="NOT RUN", reason=why))


def _deviations(group: Sequence[_Figure], spread: float, links: bool) -> list[Deviation | None]:
    values, better = [figure.middle for figure in group], group[0].check.better
    if not links:
        return from_peers(values, spread, better)
    places = [figure.measured.place for figure in group]
    ends = [(place.gpus[0].visible_index, place.gpus[1].visible_index) for place in places]
    return from_links(ends, values, spread, better, directed=places[0].arrow == ">")


def _against_base(figures: Sequence[_Figure], tolerance: Tolerance, base: Base | None) -> Iterator[_Test]:
    for figure in figures:
        if base is None or not figure.measured.values:
            continue
        values, why = base.of(figure.measured)
        deviation = from_base(figure.middle, values, tolerance.spread, figure.check.better)
        if deviation:
            yield _Test(figure, "base", deviation, tolerance)
        else:
            figure.rulings.append(Ruling(rule="base", word="NOT RUN", reason=why or "a figure of the base is 0"))


def _compared(test: _Test, decided: Decided) -> Ruling:
    """The ruling of a decided comparison in words."""
    one, check = test.deviation, test.figure.check
    worse = "below" if check.better == "higher" else "above"
    sign = -1 if check.better == "higher" else 1
    threshold = one.reference * (1 + sign * test.tolerance.fail)
    size = abs(test.figure.middle / one.reference - 1)
    side = worse if one.effect < 0 else "above" if worse == "below" else "below"
    if test.rule == "base":
        what = f"the base's {number(one.reference)} ({one.n} figure{'' if one.n == 1 else 's'})"
    elif one.n == 1:
        what = f"the other's {number(one.reference)}"
    else:
        what = f"the median {number(one.reference)} of the {one.n} others"
    reason = f"{percent(size)} {side} {what}"
    if decided.word == "WARN" and not decided.significant:
        reason = f"{reason}, which is not significant, since these differ so much"
    return Ruling(rule=test.rule, word=decided.word, value=test.figure.middle, threshold=threshold, reason=reason)


# --- the outcomes


def _outcome(
    figure: _Figure, of_check: Sequence[_Figure], rules: Rules, around: Around, commands: Mapping[str, str]
) -> Outcome:
    measured, rulings = figure.measured, figure.rulings
    word = judged(rulings)
    deciding = next((ruling for ruling in rulings if ruling.word == word), None)
    cause = None
    if word in ("WARN", "FAIL"):
        others = [other.measured for other in of_check if other is not figure]
        cause = cause_of(measured, figure.check, others, around)
    value = deciding.value if deciding and deciding.value is not None else figure.middle if measured.values else None
    reason = "; ".join(ruling.reason for ruling in rulings if ruling.word == word and ruling.reason)
    return Outcome(
        check=measured.check,
        title=rules.title(measured.check),
        place=measured.place.words,
        uuids=tuple(gpu.uuid for gpu in measured.place.gpus),
        word=word,
        value=value,
        unit=figure.check.unit,
        threshold=deciding.threshold if deciding else None,
        reason=one_line(reason or "there is nothing to judge it by", 400),
        cause=cause,
        command=commands[measured.rows[0].task.id],
        rulings=tuple(rulings),
    )


def _shared_ends(found: list[Outcome]) -> list[Outcome]:
    """Where all bad links of a check share one GPU, the cause is that GPU, not the links."""
    for check in dict.fromkeys(one.check for one in found if len(one.uuids) == 2):
        bad = [one for one in found if one.check == check and one.word == "FAIL"]
        shared = set.intersection(*(set(one.uuids) for one in bad)) if len(bad) >= _SHARING else set()
        if len(shared) == 1:
            (uuid,) = shared
            number_of = re.findall(r"\d+", bad[0].place)[bad[0].uuids.index(uuid)]
            cause = f"GPU {number_of} ({uuid}), at which all {len(bad)} bad links end"
            found = [msgspec.structs.replace(one, cause=cause) if one in bad else one for one in found]
    return found


def _failed(row: Row) -> Outcome:
    """A task that failed: the node could not do what it was asked."""
    place = place_of(row)
    reason = one_line(f"the probe {ended(row.status)}: {row.reason}", 300)
    busy = [(gpu, found) for gpu in row.task.gpus if (found := neighbours([row], gpu.uuid))]
    cause = "; ".join(f"GPU {gpu.visible_index}: {neighbour_words(found)}" for gpu, found in busy) or None
    outcome = _plain(row.task.job.name, place, "FAIL", reason, row, Ruling(rule="ran", word="FAIL", reason=reason))
    return msgspec.structs.replace(outcome, cause=cause)


def _gap(gap: Gap, rules: Rules) -> Outcome:
    reason = one_line(gap.reason, 300)
    ruling = Ruling(rule="ran", word="NOT RUN", reason=reason)
    return _plain(gap.check, gap.place, "NOT RUN", reason, gap.row, ruling, rules.title(gap.check), gap.missing)


def _plain(
    check: str,
    place: Place,
    word: Word,
    reason: str,
    row: Row | None,
    ruling: Ruling,
    title: str | None = None,
    missing: bool = False,
) -> Outcome:
    return Outcome(
        check=check,
        title=title or check.replace("_", " "),
        place=place.words,
        uuids=tuple(gpu.uuid for gpu in place.gpus),
        word=word,
        reason=reason,
        command=shows(row.task) if row and row.status != "skipped" else "",
        missing=missing,
        rulings=(ruling,),
    )


def shows(task: Task) -> str:
    """The command that runs a task alone. Results of other programs may lack the variables that name its GPUs."""
    named = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in task.gpus)}
    return command_line(msgspec.structs.replace(task, environ={**named, **task.environ}))
