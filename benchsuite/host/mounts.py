"""The mounted file systems, from /proc/self/mountinfo; its format is in proc_pid_mountinfo(5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from benchsuite.host import kernel_files

FILE = "proc/self/mountinfo"
# The kernel writes blanks, line ends and backslashes as octal numbers.
_ESCAPED = re.compile(r"\\([0-3][0-7]{2})")


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
        device: its device number, "major:minor".
        part: the folder of the file system that is mounted.
        point: where it is mounted.
        kind: its type, such as "ext4" or "cgroup2".
        options: the options of the file system.
    """

    device: str
    part: str
    point: str
    kind: str
    options: tuple[str, ...]


def mounted(root: Path = Path("/")) -> tuple[list[Mount], list[str]]:
    """The mounted file systems in the order of the file, and its malformed lines. Both are empty if it cannot be read.

    Args:
        root: the folder that holds `proc`.
    """
    found, malformed = [], []
    for line in kernel_files.lines(root / FILE):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(kind) < 3 or not fields[4].startswith("/"):
            malformed.append(line)
            continue
        part, point = (_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), field) for field in fields[3:5])
        found.append(Mount(fields[2], part, point, kind[0], tuple(kind[-1].split(","))))
    return found, malformed
