"""All findings about a run's folder, in the order in which a reader asks: is it whole, is it true, is it enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchsuite.report.verify import Finding, demands, manifest, measured, plan, results
from benchsuite.report.verify.evidence import gather

RECORDS, DEMANDS = "Do the records belong together?", "What a tender could demand"


def check(path: Path, shipped: Mapping[str, str]) -> dict[str, list[Finding]]:
    """Title -> findings.

    Args:
        shipped: name -> hash of the jobs, of the profiles that this benchsuite ships.

    Raises:
        ResultError: no such folder, nothing of a run in it, or it holds several.
    """
    evidence = gather(path)
    records = [*manifest.findings(evidence), *plan.findings(evidence), *results.findings(evidence)]
    return {RECORDS: records, DEMANDS: [*demands.findings(evidence, shipped), *measured.findings(evidence)]}
