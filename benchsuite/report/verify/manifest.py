"""The manifest: is every file as the run left it, and is no file added?"""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite import manifest
from benchsuite.findings import Finding, bad, note, ok, unmet
from benchsuite.report.format import count
from benchsuite.report.verify import remedies
from benchsuite.report.verify.evidence import Evidence


def findings(evidence: Evidence) -> Iterator[Finding]:
    """The files of the folder against its manifest."""
    yield from _own_files(evidence)
    if evidence.loaded.in_progress:
        text = "the run is in progress: there is no manifest yet, and the checks below hold for this moment"
        yield unmet("manifest", text, "verify it again after its end")
    elif evidence.seal is None:
        text = "missing: the run was cut off, or the file was removed; changes to files show only where files disagree"
        yield unmet("manifest", text, remedies.finish(evidence))
    else:
        yield from _sealed(evidence, evidence.seal)


def _own_files(evidence: Evidence) -> Iterator[Finding]:
    troubles = [f"{name} is missing" for name in manifest.OWN if not (evidence.path / name).exists()]
    troubles += [f"{file.relative_to(evidence.path)}: {why}" for file, why in evidence.loaded.bad_files]
    if troubles:
        yield bad("files", f"{count(len(troubles), 'file')} missing or unusable", None, troubles)
    else:
        yield ok("files", f"run.json, plan.json, attempts.jsonl and {count(len(evidence.kept), 'result')} can be read")


def _sealed(evidence: Evidence, seal: manifest.Seal) -> Iterator[Finding]:
    found = manifest.changes(evidence.path, seal)
    troubles = list(found.words())
    if seal.malformed:
        troubles.append(f"{count(seal.malformed, 'line')} of {manifest.NAME} itself cannot be read")
    unlisted = [name for name in manifest.OWN if (evidence.path / name).exists() and name not in seal.files]
    inside = [file.relative_to(evidence.path).as_posix() for file, _ in evidence.kept]
    unlisted += [name for name in inside if name not in seal.files]
    troubles += [f"{name} is additional: the run did not write it" for name in sorted(unlisted)]
    if troubles:
        text = f"{count(len(troubles), 'file')} not as the run left them"
        yield bad("manifest", text, "ask for the folder as the run left it", troubles)
    else:
        text = f"{count(len(seal.files), 'file')} as the run left them; sha256 of the manifest:"
        yield ok("manifest", text, [seal.sha256])
    names = sorted(row.file.name for row in evidence.loaded.reruns if row.file)
    if names:
        yield note("reruns", f"{count(len(names), 'rerun')} beside the run, counted in no figure", None, names)
