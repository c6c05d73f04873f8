"""All findings about a run's folder, in the order in which a reader asks: is it whole, is it true, is it enough."""

from __future__ import annotations

from pathlib import Path

from benchsuite.findings import Finding
from benchsuite.report.verify import demands, manifest, measured, plan, results
from benchsuite.report.verify.evidence import gather

RECORDS, DEMANDS = "Do the records belong together?", "Purchase requirements"


def check(path: Path) -> dict[str, list[Finding]]:
    """Title -> findings.

    Raises:
        ResultError: no such folder, nothing of a run in it, or it holds several.
    """
    evidence = gather(path)
    records = [*manifest.findings(evidence), *plan.findings(evidence), *results.findings(evidence)]
    return {RECORDS: records, DEMANDS: [*demands.findings(evidence), *measured.findings(evidence)]}
