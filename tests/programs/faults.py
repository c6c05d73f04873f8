"""A model without torch that goes wrong in a chosen way, after a few slices of doing nothing well.

Application: none. An item is a nap.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchsuite.models import Workload


@dataclass(frozen=True)
class Params:
    kind: Literal[
        "ok",
        "raise",
        "oom",
        "silent",
        "exit",
        "sigkill",
        "segv",
        "hang",
        "grandchild",
        "stubborn",
        "noisy",
        "bytes",
        "eats",
        "huge",
        "scribbles",
    ] = "ok"
    after_s: float = 1.2
    start_s: float = 0.0
    nap_s: float = 0.01
    items: int = 1
    file: str = ""
    note: str = ""
    neg: str = ""
    words: tuple[str, ...] = ()
    flag: bool = False
    limit: int | None = None


def build(params: Params) -> Workload:
    if params.file:
        seen = {**vars(params), "pid": os.getpid(), "environ": dict(os.environ)}
        Path(params.file).write_text(json.dumps(seen), encoding="utf-8")
    if params.kind == "noisy":
        for stream in (sys.stderr, sys.stdout):
            stream.write(("x" * 99 + "\n") * 50_000)
            stream.flush()
    if params.kind == "bytes":
        for fd in (1, 2):
            os.write(fd, b"start \xff\xfe \xe2\x96\x88 50%\rdone\n")
    time.sleep(params.start_s)
    naps = 0

    def step(_: None) -> int:
        # Naps are counted, not the time since the start: on a busy machine it would pass before the first slice ends.
        nonlocal naps
        naps += 1
        time.sleep(params.nap_s)
        if naps * params.nap_s > params.after_s:
            go_wrong(params.kind)
            if params.kind == "huge":
                return 10**400
        return params.items

    return Workload(unit="nap", batches=lambda share: itertools.repeat(None), items=lambda batch: 0, step=step)


def go_wrong(kind: str) -> None:
    if kind == "raise":
        raise ValueError("a nap too far")
    if kind == "oom":
        raise RuntimeError("CUDA out of memory (not really)")
    if kind == "scribbles":
        for fd in Path("/proc/self/fd").iterdir():
            if fd.is_symlink() and fd.readlink().name.endswith(".events.jsonl"):
                os.write(int(fd.name), b"\xff\n")
    if kind == "silent":
        os._exit(0)
    if kind == "exit":
        os._exit(3)
    if kind == "eats":
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * (8 << 20))
    if kind == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "segv":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "grandchild":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind in ("hang", "grandchild", "stubborn"):
        while True:
            time.sleep(60)
