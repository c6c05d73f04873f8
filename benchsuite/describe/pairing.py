"""Pairs of nodes in rounds, so that each node meets each other once and all of them are at work at the same time."""

from __future__ import annotations


def rounds(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The rounds of a round-robin tournament, by the circle method.

    The first player stays in its place, and the others move on by one place after each round. An odd number of players
    gets an empty place beside them. Who meets it has a bye.

    Args:
        count: players, numbered from 0.

    Returns:
        The pairs of each round, the smaller number first. An even number of players has count - 1 rounds, an odd number
        count rounds.
    """
    places = list(range(count + count % 2))
    found = []
    for _ in range(len(places) - 1):
        pairs = (sorted(pair) for pair in zip(places, reversed(places), strict=True))
        met = {(one, other) for one, other in pairs if other < count}
        found.append(tuple(sorted(met)))
        places[1:] = [places[-1], *places[1:-1]]
    return tuple(found)
