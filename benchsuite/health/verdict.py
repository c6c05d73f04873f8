"""What the judging of a node leaves: a word for each check and place, and one for the node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.report.format import count, few, number
from benchsuite.schema import Record

Word = Literal["PASS", "WARN", "FAIL", "NOT RUN"]
# From the worst on. NOT RUN of a check that was to run ranks above WARN for a node: it is never a pass.
WORDS: tuple[Word, ...] = ("FAIL", "NOT RUN", "WARN", "PASS")


class Ruling(Record, frozen=True, kw_only=True):
    """What one rule says of a figure."""

    rule: Literal["floor", "peer", "base", "most", "expect", "ran", "state"]
    word: Word
    value: Annotated[float | str | None, Meta(description="the figure that the rule looked at")] = None
    threshold: Annotated[float | None, Meta(description="FAIL below it, or above where less is better")] = None
    reason: Annotated[str, Meta(description="why it has this word")] = ""
    source: Annotated[str | None, Meta(description="where a floor comes from")] = None


class Outcome(Record, frozen=True, kw_only=True):
    """A check at one place: the worst word of its rules."""

    check: str
    title: str
    place: Annotated[str, Meta(description="GPU 3, link 0>1 or node")] = "node"
    uuids: Annotated[tuple[str, ...], Meta(description="the GPU, or both ends of a link")] = ()
    word: Word
    value: float | str | None = None
    unit: str = ""
    threshold: float | None = None
    reason: str = ""
    cause: Annotated[str | None, Meta(description="the likely cause of a WARN or FAIL")] = None
    command: Annotated[str, Meta(description="shows it again")] = ""
    missing: Annotated[bool, Meta(description="NOT RUN, although the node could have run it")] = False
    rulings: tuple[Ruling, ...] = ()

    @property
    def figure(self) -> str:
        """ "612.0 TFLOP/s"; empty without a figure."""
        if self.value is None:
            return ""
        if self.unit == "results" and isinstance(self.value, float):
            return count(round(self.value), "result")
        shown = self.value if isinstance(self.value, str) else number(self.value) if self.value else "0"
        return f"{shown} {self.unit}".strip()

    @property
    def where(self) -> str:
        """ "GPU 3 (GPU-1234...)", "link 0>1 (GPU-1234... > GPU-5678...)" or "node"."""
        return f"{self.place} ({', '.join(self.uuids)})" if self.uuids else self.place

    @property
    def brief(self) -> str:
        """The place, title, figure, reason and cause in one line."""
        figure = f" {self.figure}" if self.figure else ""
        cause = f"; likely cause: {self.cause}" if self.cause else ""
        return f"{self.where} {self.title}{figure}: {self.reason}{cause}"

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the floors behind the word come from."""
        return tuple(one.source for one in self.rulings if one.source and one.word == self.word)


def judged(rulings: Sequence[Ruling]) -> Word:
    """The word of a figure from those of its rules. A rule that could not be applied does not count."""
    words = {ruling.word for ruling in rulings}
    return next((word for word in ("FAIL", "WARN", "PASS") if word in words), "NOT RUN")


class Node(Record, frozen=True, kw_only=True):
    """The verdict on one node."""

    host: str
    word: Word
    reason: Annotated[str, Meta(description="the worst outcome, or what was judged")]
    folder: Annotated[str, Meta(description="the run folder")] = ""
    gpus: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def worst(self) -> tuple[Outcome, ...]:
        """The outcomes that are not PASS, the worst first."""
        order = {word: place for place, word in enumerate(WORDS)}
        return tuple(sorted((one for one in self.outcomes if one.word != "PASS"), key=lambda one: order[one.word]))

    @property
    def counts(self) -> Counter[str]:
        """Word -> number of outcomes."""
        return Counter(one.word for one in self.outcomes)


def node_word(outcomes: Iterable[Outcome], needs_gpu: str | None) -> tuple[Word, str]:
    """The word of a node and its reason.

    FAIL if anything fails. NOT RUN if something that was to run has no outcome, if nothing passed, or if no GPU was
    judged on a node that may have some. Else WARN or PASS. Checks that do not apply to the node do not count.

    Args:
        needs_gpu: why a node without a judged GPU is NOT RUN; None if it is to have no GPU.
    """
    outcomes = list(outcomes)
    of_word = {word: [one for one in outcomes if one.word == word] for word in WORDS}
    passed = of_word["PASS"] + of_word["WARN"]
    if failed := of_word["FAIL"]:
        return "FAIL", _with_more(failed)
    if missing := [one for one in of_word["NOT RUN"] if one.missing]:
        return "NOT RUN", _with_more(missing)
    if not passed:
        return "NOT RUN", needs_gpu or "no check was judged"
    if needs_gpu is not None and not any(one.uuids for one in passed if one.rulings and one.rulings[0].rule != "state"):
        return "NOT RUN", needs_gpu
    if warned := of_word["WARN"]:
        return "WARN", _with_more(warned)
    return "PASS", f"{len(passed)} passed{_idle(of_word['NOT RUN'])}"


def _idle(outcomes: Sequence[Outcome]) -> str:
    """The number of checks that were not run, and why."""
    if not outcomes:
        return ""
    why = few(dict.fromkeys(one.reason for one in outcomes), 2)
    return f", {len(outcomes)} not run ({'; '.join(why)})"


def _with_more(found: Sequence[Outcome]) -> str:
    """The first outcome in words, with the command that shows it, and the number of the others."""
    first = found[0]
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    show = f"; show: {first.command}" if first.command else ""
    return f"{first.brief}{show}{more}"
