"""The vote over fingerprints: which device, or which link between two devices, is the odd one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence


class Votes:
    """Counts the fingerprints of each work on each device.

    Args:
        works: the names of the works.
        devices: the number of devices, which do the same works.
    """

    def __init__(self, works: Sequence[str], devices: int) -> None:
        self.works, self.devices = tuple(works), devices
        self._seen: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        self._copies: Counter[tuple[int, int]] = Counter()
        self._changed: Counter[tuple[int, int]] = Counter()

    def add(self, work: str, device: int, found: str) -> None:
        """Count the fingerprint of a result."""
        self._seen[work, device][found] += 1

    def add_copy(self, sender: int, receiver: int, sent: str, received: str) -> None:
        """Count a copy, by the fingerprints of what was sent and of what has arrived."""
        self._copies[sender, receiver] += 1
        self._changed[sender, receiver] += sent != received

    @property
    def compared(self) -> int:
        """The results and copies counted so far."""
        return sum(sum(seen.values()) for seen in self._seen.values()) + sum(self._copies.values())

    def usual(self, work: str, device: int) -> str | None:
        """The most frequent fingerprint of a device; None if it has no result."""
        seen = self._seen[work, device].most_common(1)
        return seen[0][0] if seen else None

    def right(self, work: str) -> str | None:
        """The fingerprint that is usual on more than half of the devices; None if there is none."""
        (found, votes), *_ = Counter(self.usual(work, device) for device in range(self.devices)).most_common(1)
        return found if 2 * votes > self.devices else None

    def wrong(self, device: int) -> int | None:
        """The results of a device that differ from the right ones; None if the right ones of a work are not known."""
        total = 0
        for work in self.works:
            right = self.right(work)
            if right is None:
                return None
            total += self._results(work, device) - self._seen[work, device][right]
        return total

    def flaky(self, device: int) -> int:
        """The results of a device that differ from its own usual ones."""
        usual = ((work, self.usual(work, device)) for work in self.works)
        return sum(self._results(work, device) - self._seen[work, device][one or ""] for work, one in usual)

    def links(self) -> dict[tuple[int, int], int]:
        """The link between a sender and a receiver -> the copies that arrived changed."""
        return {link: self._changed[link] for link in sorted(self._copies)}

    def verdict(self) -> str:
        """`equal`, or in a sentence who is the odd one."""
        found = [*self._odd_devices(), *self._odd_links()]
        return "; ".join(found) or "equal"

    def _results(self, work: str, device: int) -> int:
        return sum(self._seen[work, device].values())

    def _odd_devices(self) -> list[str]:
        found = []
        for work in self.works:
            right = self.right(work)
            if right is None:
                found.append(f"{work}: {self._camps(work)}")
                continue
            for device in range(self.devices):
                results = self._results(work, device)
                wrong = results - self._seen[work, device][right]
                if wrong:
                    kind = "constant" if len(self._seen[work, device]) == 1 else "flaky"
                    against = "the majority's" if self.devices > 1 else "its usual one"
                    found.append(f"{work}: GPU {device} is wrong ({kind}): {wrong} of {results} differ from {against}")
        return found

    def _camps(self, work: str) -> str:
        """The groups of devices whose usual results are the same."""
        camps: dict[str | None, list[str]] = defaultdict(list)
        for device in range(self.devices):
            camps[self.usual(work, device)].append(str(device))
        return f"they differ, and no majority says which is right: GPU {' | '.join(map(','.join, camps.values()))}"

    def _odd_links(self) -> list[str]:
        return [
            f"link: {changed} of {self._copies[link]} copies from GPU {link[0]} to GPU {link[1]} arrived changed"
            for link, changed in self.links().items()
            if changed
        ]
