"""Leave a value in the store of torch's launcher, or find it there.

python -m benchsuite.worker.meeting publish ADDRESS PORT KEY VALUE
python -m benchsuite.worker.meeting find ADDRESS PORT KEY
"""

from __future__ import annotations

import sys
from datetime import timedelta

from benchsuite.worker.parent_death import die_with_parent

LIMIT_S = 300


def main(what: str, address: str, port: str, key: str, value: str = "") -> int:
    """Publish or find a value; the one that was found is printed.

    Returns:
        The exit status.
    """
    from torch.distributed import TCPStore

    die_with_parent()
    store = TCPStore(address, int(port), is_master=False, timeout=timedelta(seconds=LIMIT_S), wait_for_workers=False)
    if what == "publish":
        store.set(key, value)
    else:
        print(store.get(key).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
