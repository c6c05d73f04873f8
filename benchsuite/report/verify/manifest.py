"""The manifest: is every file as the run left it, and is none beside them?"""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite import manifest
from benchsuite.findings import Finding, bad, note, ok, unmet
from benchsuite.report.show.format import count
from benchsuite.report.verify.evidence import Evidence

_ABOUT = "manifest"


def findings(evidence: Evidence) -> Iterator[Finding]:
    """The manifest beside the folder, recomputed."""
    yield from _own_files(evidence)
    if evidence.loaded.in_progress:
        text = "the run is in progress, so what follows is of this moment and there is no manifest yet"
        yield unmet(_ABOUT, text, "verify it again when it is over")
    elif evidence.seal is None:
        text = "none: the run was cut off, or it was removed; whether the files are as they were left cannot be told, "
        text += "only whether they agree (below)"
        yield unmet(_ABOUT, text, "finish the run: the same 'benchsuite jobs' with --resume")
    else:
        yield from _sealed(evidence, evidence.seal)


def _own_files(evidence: Evidence) -> Iterator[Finding]:
    missing = [name for name in manifest.OWN if not (evidence.path / name).exists()]
    damaged = [f"{file.relative_to(evidence.path)}: {why}" for file, why in evidence.loaded.bad_files]
    troubles = [*(f"{name} is missing" for name in missing), *damaged]
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
    inside = [(file.relative_to(evidence.path).as_posix(), result) for file, result in evidence.kept]
    unlisted += [name for name, _ in inside if name not in seal.files]
    troubles += [f"{name} is additional: the run did not write it" for name in sorted(unlisted)]
    if troubles:
        text = f"{count(len(troubles), 'file')} not as the run left them"
        yield bad(_ABOUT, text, "ask for the folder as the run left it", troubles)
    else:
        text = f"{count(len(seal.files), 'file')} as the run left them; the manifest's own sha256:"
        yield ok(_ABOUT, text, [seal.sha256])
    names = sorted(row.file.name for row in evidence.loaded.reruns if row.file)
    if names:
        yield note("reruns", f"{count(len(names), 'rerun')} additional, counted in no figure", None, names)
