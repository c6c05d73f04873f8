"""One rank that runs the probes of a group with tiny sizes; rank 0 prints what they found.

Arguments: the file of heartbeats.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from benchsuite.models import Share, probe_collective, probe_corruption, probe_overlap, probe_peer_links
from benchsuite.worker.ranks import join
from benchsuite.worker.ways import make_step

STEPS = 2
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PROBES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{one: (probe_collective, {**probe_collective.SMALL, "operation": one}) for one in OPERATIONS},
    "overlap": (probe_overlap, probe_overlap.SMALL),
    "peer_links": (probe_peer_links, {**probe_peer_links.SMALL}),
    "corruption": (probe_corruption, {**probe_corruption.SMALL, "plant": (1, 1, 4)}),
}


def main() -> None:
    ranks = join("cpu", 60.0, sys.argv[1])
    found: dict[str, Any] = {}
    for name, (model, params) in PROBES.items():
        workload = model.build(model.Params(**params))
        step = make_step(workload, device="cpu", ranks=ranks)
        batches = step.feed(workload.batches(Share(rank=ranks.rank, ranks=ranks.ranks)))
        items = [step.run(next(batches)) for _ in range(STEPS)]
        leads = workload.by_ranks == "lead"
        readings = {} if leads and ranks.rank else workload.readings()
        found[name] = {"items": items, "readings": msgspec.to_builtins(readings)}
        if leads and ranks.rank:
            assert items == [0] * STEPS
        ranks.barrier()
    if ranks.rank == 0:
        print(json.dumps({"found": found, "beats": list(ranks.pulse)}))
    ranks.leave()


if __name__ == "__main__":
    main()
