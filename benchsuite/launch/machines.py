"""The machines of a driver configuration of PipeDream: this host, and which of its GPUs."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from benchsuite.describe.tasks import Gpu
from benchsuite.errors import UsageError, one_line
from benchsuite.pipeline.driver import Place


def elsewhere(places: Sequence[Place]) -> list[str]:
    """The hosts that are not this one, each once."""
    return [host for host in dict.fromkeys(place.host for place in places) if not is_here(host)]


def is_here(host: str) -> bool:
    """Whether a name is one of this host's: localhost, its loopback addresses, or its name with or without a domain."""
    own = socket.gethostname().lower()
    short, name = own.partition(".")[0], host.lower()
    return name in ("localhost", "127.0.0.1", "::1", own, short) or (own == short and name.startswith(f"{own}."))


def gpus_of(places: Sequence[Place], visible: Sequence[Gpu]) -> tuple[list[Gpu], str | None]:
    """The GPUs of the ranks, in the order of the ranks; none if no GPU is visible.

    If a number is not that of a visible GPU, the ranks get the GPUs in order, as PipeDream always does.

    Returns:
        The GPUs, and a note if their numbers are not those of the configuration.

    Raises:
        UsageError: there are more ranks than GPUs.
    """
    if not visible:
        return [], None
    if len(places) > len(visible):
        raise UsageError(f"field 'machines': {len(places)} GPUs of this host are named, and {len(visible)} are visible")
    numbers = [place.gpu for place in places]
    if all(number < len(visible) for number in numbers):
        return [visible[number] for number in numbers], None
    named = one_line(", ".join(place.name for place in places))
    return list(visible[: len(places)]), f"machines {named}: taken as GPUs 0 to {len(places) - 1} of this host"
