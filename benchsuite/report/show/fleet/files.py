"""The files of a fleet's report: HTML, CSV, Markdown and JSON; and the commands that drain nodes."""

from __future__ import annotations

import csv
import dataclasses
import io
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchsuite.errors import one_line
from benchsuite.report.fleet.judge import Fleet, FleetNode
from benchsuite.report.fleet.outliers import FleetOutlier
from benchsuite.report.show.escaped import csv_cell, json_text
from benchsuite.report.show.fleet.document import fleet_document, headline
from benchsuite.report.show.fleet.pairs import pairs_json
from benchsuite.report.show.fleet.rows import NodeRow, job_rows, node_row, rates
from benchsuite.report.show.output import Target
from benchsuite.schema import SCHEMA
from benchsuite.writing import write_for_user

# Longer reasons are cut: Slurm shows them in a column.
_LONGEST = 200


def written_fleet(fleet: Fleet, asked: Sequence[Target]) -> Iterator[tuple[Target, str]]:
    """Write each file, and yield each target with its text, also those for standard output.

    Raises:
        OutputError: a file exists or cannot be written.
    """
    for target in asked:
        text = _text(target.kind, fleet)
        if not target.to_stdout:
            write_for_user(Path(target.file), text.encode(errors="replace"), f"--{target.kind}")
        yield target, text


def _text(kind: str, fleet: Fleet) -> str:
    """The fleet in one format; jinja2 is slow to import, and only the page needs it."""
    if kind == "html":
        from benchsuite.report.show.html.fleet import fleet_page

        return fleet_page(fleet)
    if kind == "md":
        from benchsuite.report.show.markdown import markdown

        return markdown(fleet_document(fleet))
    return to_csv(fleet) if kind == "csv" else to_json(fleet)


def to_csv(fleet: Fleet) -> str:
    """One row for each node, with a column `rate_JOB` in items/s for each job; reasons are joined by semicolons."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(NodeRow)]
    of_node = rates(fleet)
    jobs = list(dict.fromkeys(job for grid in fleet.grids for job in grid.jobs))
    writer.writerow([*names, *(csv_cell(f"rate_{job}") for job in jobs)])
    for node in fleet.nodes:
        row = dataclasses.asdict(node_row(node, fleet))
        row["reasons"] = "; ".join(row["reasons"]) or None
        own = of_node.get(node.name, {})
        figures = [own[job][0] if job in own else None for job in jobs]
        writer.writerow([*(csv_cell(row[name]) for name in names), *map(csv_cell, figures)])
    return out.getvalue()


def to_json(fleet: Fleet) -> str:
    """Everything: the nodes with their jobs, the outliers, the jobs over nodes, what is mixed and what is missing."""
    of_node = rates(fleet)
    content = {
        "schema": SCHEMA,
        "kind": "fleet",
        "headline": headline(fleet),
        "verdicts": dict(fleet.counts),
        "least_effect": fleet.least,
        "missing": fleet.folders.missing,
        "unlisted": fleet.folders.unlisted,
        "listed_in": str(fleet.folders.listed_in) if fleet.folders.listed_in else None,
        "one_host": fleet.one_host,
        "mixed": fleet.mixed,
        "groups": [
            {
                "hardware": grid.kind,
                "nodes": len(grid.nodes),
                "tests": found.tests,
                "smallest": found.smallest,
                "untested": found.untested or None,
            }
            for grid, found in zip(fleet.grids, fleet.found, strict=True)
        ],
        "nodes": [_node(node, fleet, of_node.get(node.name, {})) for node in fleet.nodes],
        "outliers": [_outlier(one) for one in fleet.outliers],
        "jobs": list(job_rows(fleet)),
        "pairs": [pairs_json(found) for found in fleet.tournaments],
        "drain": list(drain_lines(fleet)),
    }
    return json_text(content)


def _node(node: FleetNode, fleet: Fleet, own: dict[str, tuple[float, float]]) -> dict[str, Any]:
    row = dataclasses.asdict(node_row(node, fleet))
    row["reasons"] = [dataclasses.asdict(reason) for reason in node.reasons]
    row["jobs"] = {
        name: {
            "rate": own[name][0] if name in own else None,
            "effect": own[name][1] if name in own else None,
            "failed": int(job.fail.sum()),
            "tasks": job.n,
        }
        for name, job in node.record.jobs.items()
    }
    return row


def _outlier(one: FleetOutlier) -> dict[str, Any]:
    gpu = {"index": one.gpu.index, "uuid": one.gpu.uuid} if one.gpu else None
    return {"node": one.node, "gpu": gpu, "deviations": one.deviations, "causes": one.causes}


def drain_lines(fleet: Fleet) -> Iterator[str]:
    """A command for a shell that drains each node that fails. A folder has the name of its node in Slurm."""
    for node in fleet.nodes:
        if node.word == "FAIL":
            reason = one_line(f"benchsuite report: {node.words}")[:_LONGEST]
            yield f"scontrol update {shlex.join([f'nodename={node.name}', 'state=drain', f'reason={reason}'])}"
