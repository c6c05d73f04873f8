#!/usr/bin/env python
"""Convert a published baseline of milarun 2020: `baselines/v100.json` and `baselines/rtx8000.json` are made so.

    scripts/convert_milarun.py PUBLISHED/standard/v100.json -o baselines/v100.json --machine "8 V100 GPUs"

PUBLISHED is the folder `baselines` of mila-iqia/milabench at the tag mila-ao-2020-2. Numbers and scores stay as they
were published. A job that milarun counted in another unit has a `unit_factor`. A job that cannot be compared is
`excluded`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from benchsuite.errors import BenchError
from benchsuite.report.milarun import summary_files
from benchsuite.report.milarun.suite import converted
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import write_summary

TAG = "mila-ao-2020-2"
TAGGED = "2020-08-06"


def convert(file: Path, machine: str, repeats: int, cgroups: bool) -> Summary:
    """Convert one summary. Raises SystemExit: the file is not a summary of milarun."""
    published = summary_files.read_file(file)
    if published is None or published.profile is None:
        raise SystemExit(f"{file}: not a summary of milarun 2020")
    name = f"baselines/{published.profile.name}/{file.name}"
    progression = sum(job.n for job in published.jobs if job.devices == "progression")
    tasks = sum(job.n for job in published.jobs)
    isolation = {"cgroup v1 cpuset and memory (as published)": tasks - progression} if cgroups else {}
    return replace(
        converted(published),
        created=TAGGED,
        provenance=(
            f"published figures of milarun 2020 (mila-iqia/milabench, tag {TAG}, {name}): one machine with {machine}, "
            f"{repeats} repeats, cgroups {'on' if cgroups else 'off'}, PyTorch 1.5. Measured by another "
            "implementation: a ratio tells how far machines and programs lie apart, not machines alone. Rates are "
            "means of up to 18 half seconds; lost tasks are in no figure"
        ),
        isolation={**isolation, "none (as published)": tasks - sum(isolation.values())},
        data={"real or generated, as milarun had it": tasks},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert a published baseline of milarun 2020.")
    parser.add_argument("file", type=Path, help="milarun's summary")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new file")
    parser.add_argument("--machine", required=True, help='for its provenance, such as "8 V100 GPUs"')
    parser.add_argument("--repeats", type=int, default=10, help="repeats of the published run  [default: 10]")
    parser.add_argument(
        "--no-cgroups", action="store_true", help="the published run had no cgroups (a file named -nocg)"
    )
    asked = parser.parse_args()
    try:
        summary = convert(asked.file, asked.machine, asked.repeats, not asked.no_cgroups)
        write_summary(asked.output, summary)
    except BenchError as error:
        raise SystemExit(f"convert_milarun: {error}") from None


if __name__ == "__main__":
    main()
