"""`benchsuite verify`: do the files of a run agree, and is the run complete enough for a purchase?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from benchsuite.findings import Finding


_EXAMPLES = (
    ("benchsuite verify results/bid", "Were files of a run changed?"),
    ("benchsuite verify results/bid --strict", "Is the run complete enough for a purchase?"),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat unmet purchase requirements as errors: exit status 1.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--all", "every", is_flag=True, help="Show every detail, not only the first few.")
def command(out: Path | None, strict: bool, as_json: bool, every: bool) -> int:
    """Check the files of a run for changes.

    OUT is a results folder; the default is the newest one. Also checked is whether the run is complete enough for a
    purchase.

    It cannot detect the best of several runs, a folder that was made up as a whole, a patched program, or another
    machine than the one for sale. Choose the machine yourself, ask for all runs of a day, and repeat some tasks with
    'benchsuite rerun'.

    Exit status 0; with --strict 1 where anything is BAD.
    """
    from benchsuite import default_out
    from benchsuite.findings import lines
    from benchsuite.report.verify.check import check

    out = out or default_out.newest_run(os.environ)
    sections = check(out)
    troubles = sum(finding.is_bad(strict) for findings in sections.values() for finding in findings)
    if as_json:
        click.echo(_json(out, strict, sections))
        return 1 if strict and troubles else 0
    width = max(len(finding.about) for findings in sections.values() for finding in findings)
    for title, findings in sections.items():
        click.echo(click.style(title, bold=True))
        for line in lines(findings, width, click.style, strict, every):
            click.echo(line)
    verdict = f"{troubles} bad" if troubles else "nothing bad"
    rest = "" if strict else "; --strict also counts unmet requirements as bad"
    click.echo(f"{verdict}{rest}. 'benchsuite verify --help' names what it cannot detect.")
    return 1 if strict and troubles else 0


def _json(out: Path, strict: bool, sections: dict[str, list[Finding]]) -> str:
    """Every finding with its section; `bad` says whether it counts against the run."""
    import json

    import msgspec

    from benchsuite.errors import one_line

    found = [
        {"section": title, "bad": finding.is_bad(strict), **msgspec.to_builtins(finding)}
        for title, findings in sections.items()
        for finding in findings
    ]
    bad = sum(finding["bad"] for finding in found)
    content = {"folder": one_line(str(out)), "strict": strict, "bad": bad, "findings": found}
    # A command may name a folder whose bytes are not UTF-8, which msgspec refuses.
    return json.dumps(content, indent=2, ensure_ascii=False)
