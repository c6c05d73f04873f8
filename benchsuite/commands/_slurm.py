"""The options of `benchsuite jobs` that start a run on the nodes of a Slurm cluster, and what they do."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchsuite.commands._budget import check_alone
from benchsuite.errors import UsageError

if TYPE_CHECKING:
    from benchsuite.cluster.fleet import Fleet, FleetDir
    from benchsuite.cluster.request import Request
    from benchsuite.cluster.slurm import Node
    from benchsuite.launch.asked import Settled

_OPTIONS = (
    click.option("--slurm", is_flag=True, help="Run on each node of a Slurm cluster; see docs/cluster.md."),
    click.option(
        "--nodes", type=click.IntRange(min=1), metavar="N", help="Of the cluster, use N nodes.  [default: all]"
    ),
    click.option("--nodelist", metavar="LIST", help="Of the cluster, use these nodes, such as n[1-4]."),
    click.option("--partition", metavar="P", help="Slurm's partition.  [default: Slurm's]"),
    click.option("--sbatch-arg", "sbatch_args", multiple=True, metavar="A", help="Pass A to sbatch; may be repeated."),
    click.option("--container", metavar="IMAGE", help="Run in this image on the nodes: Apptainer, or Pyxis."),
    click.option("--detach", is_flag=True, help="Return once Slurm has the jobs; see 'status'."),
)
_NEED_SLURM = ("nodes", "nodelist", "partition", "sbatch_args", "container", "detach")
_NOT_WITH_SLURM = {"join": "--join", "hosts": "--hosts", "launcher": "--launcher", "ssh_args": "--ssh-arg"}
# Options of `jobs` that a run on many nodes does not have.
_ONE_MACHINE = {"timeline": "--profile", "cores": "--profile-fp32"}


def slurm_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for Slurm to the command `jobs`. Its own function runs only what stays on this machine."""

    @functools.wraps(function)
    def chosen(slurm: bool, **given: Any) -> int:
        asked = {name: given.pop(name) for name in _NEED_SLURM}
        if slurm and (other := next((name for name in _NOT_WITH_SLURM if given[name]), None)):
            raise UsageError(f"--slurm: does not go with {_NOT_WITH_SLURM[other]}; leave out one of them")
        if slurm or (given["resume"] and _is_fleet(given["out"] or given["profile"])):
            return _on_nodes(asked, given)
        for name in _NEED_SLURM:
            if asked[name]:
                raise UsageError(f"--{'sbatch-arg' if name == 'sbatch_args' else name}: needs --slurm")
        return function(**given)

    for option in reversed(_OPTIONS):
        chosen = option(chosen)
    return chosen


def _is_fleet(out: str | None) -> bool:
    from benchsuite.cluster.fleet import FleetDir

    return out is not None and FleetDir.is_one(Path(out))


def _on_nodes(asked: dict[str, Any], given: dict[str, Any]) -> int:
    from benchsuite.cluster import request, slurm

    slurm.check_present()
    for name, option in _ONE_MACHINE.items():
        if given[name]:
            raise UsageError(f"{option}: does not go with --slurm; record on one node")
    check_alone(given["budget"], {"--repeat": given["repeat"]})
    request.check_args(asked["sbatch_args"])
    wanted = request.Request(
        asked["nodes"], asked["nodelist"], asked["partition"], asked["sbatch_args"], asked["container"]
    )
    if given["resume"]:
        return _resume(wanted, given, asked["detach"])
    return _start(wanted, given, asked["detach"])


def _start(wanted: Request, given: dict[str, Any], detach: bool) -> int:
    """Submit a new run, and wait for it unless asked not to."""
    from benchsuite.cluster import across, request, submit
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.cluster.slurm import SlurmError
    from benchsuite.default_out import new_default_out

    if given["profile"] is None:
        raise click.UsageError("Missing argument 'PROFILE'; 'benchsuite list profiles' shows the shipped ones.")
    if given["out"] in ("-", "") or (given["out"] or "").endswith(".json"):
        raise UsageError(f"-o {given['out']}: a run on many nodes needs a folder that all of them see")
    settled = _checked(given)
    if given["budget"] and (over := across.spanning(settled.profile.jobs)):
        raise UsageError(f"--budget: does not go with jobs over nodes ({', '.join(over)}); give --repeat instead")
    partition = request.partition_of(wanted)
    nodes = request.nodes_of(wanted, partition)
    fleet = _fleet(wanted, given, settled, partition, nodes)
    name, nodes = fleet.profile, across.with_across(fleet, nodes)
    submit.check(fleet, nodes, os.environ)
    if given["dry_run"]:
        return _show(fleet, nodes, Path(given["out"] or "OUT").absolute())
    made = not given["out"]
    out = new_default_out(name, os.environ, datetime.now()) if made else Path(given["out"])
    folder = FleetDir.create(out.absolute(), fleet)
    try:
        return _submit_and_wait(folder, nodes, detach, out)
    except SlurmError:
        if not folder.submitted():
            folder.remove()
        raise


def _checked(given: dict[str, Any]) -> Settled:
    """Check the profile and the data folder on this host, before any node has to.

    Raises:
        BenchError: one of them is wrong.
    """
    from benchsuite.launch.asked import Asked, fresh

    data = str(Path(given["data"]).absolute()) if given["data"] else None
    return fresh(
        Asked(given["profile"], given["only"], given["exclude"], given["changes"], data, given["repeat"]), os.environ
    )


def _fleet(wanted: Request, given: dict[str, Any], settled: Settled, partition: str, nodes: Sequence[Node]) -> Fleet:
    import secrets

    from benchsuite.cluster import across, script, submit
    from benchsuite.cluster.fleet import Fleet

    in_image, jobs = wanted.container is not None, settled.profile.jobs
    return Fleet(
        run_id=secrets.token_hex(4),
        created=datetime.now(timezone.utc).isoformat(),
        command=tuple(sys.argv),
        profile=settled.profile.name,
        nodes=tuple(node.name for node in nodes),
        each=any(job.placement.spanned == 1 for job in jobs),
        across=across.most_nodes(jobs, nodes),
        spanning=across.spanning(jobs),
        words=tuple(_words(given)),
        changes=tuple(given["changes"]),
        repeats=given["repeat"],
        partition=partition,
        sbatch_args=wanted.sbatch_args,
        container=wanted.container,
        python=submit.interpreter(),
        cwd=str(Path.cwd()),
        environ=script.set_in_script(os.environ) if in_image else submit.environment(os.environ),
        mounts=(settled.data_root,) if settled.data_root else (),
    )


def _words(given: dict[str, Any]) -> list[str]:
    """The arguments of `benchsuite jobs` on each node, without -o, --repeat and what follows `--`."""
    from benchsuite.describe.budget import BUDGET, written
    from benchsuite.describe.invocation import EXCLUDE, ISOLATION, NO_CGEXEC, ONLY, PRELOAD, REQUIRE_ISOLATION

    words = [given["profile"]]
    if given["data"]:
        words += ["-d", str(Path(given["data"]).absolute())]
    for option, names in ((ONLY, given["only"]), (EXCLUDE, given["exclude"])):
        words += [word for name in names for word in (option, name)]
    if given["isolation"]:
        words += [ISOLATION, given["isolation"]]
    if given["budget"]:
        words += [BUDGET, written(given["budget"])]
    words += [NO_CGEXEC] * given["no_cgexec"] + [REQUIRE_ISOLATION] * given["require_isolation"]
    return words + [PRELOAD] * given["preload"]


def _show(fleet: Fleet, nodes: Sequence[Node], out: Path) -> int:
    """Print the batch script and the command that would submit each node."""
    from benchsuite.cluster import script, submit
    from benchsuite.cluster.fleet import FleetDir

    click.echo(script.text(fleet, out, 1))
    for node in nodes:
        words = [*submit.sbatch_options(fleet, node, 1), str(FleetDir(out).script(1)), node.name]
        click.echo(f"# {shlex.join(['sbatch', *words])}")
    return 0


def _resume(wanted: Request, given: dict[str, Any], detach: bool) -> int:
    """Continue a run: submit the nodes that have tasks left, and wait for all."""
    from benchsuite.cluster import submit
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.cluster.survey import Survey
    from benchsuite.commands._nodes import close

    shown = Path(given["out"] or given["profile"])
    if given["out"] and given["profile"]:
        raise UsageError(
            f"{given['profile']}: the record of the run gives the profile; benchsuite jobs --resume {shown}"
        )
    if not FleetDir.is_one(shown):
        raise UsageError(f"{shown}: holds no run on many nodes; leave out --slurm, or name the folder of such a run")
    names = ("data", "budget", "only", "exclude", "changes", "isolation", "no_cgexec", "require_isolation", "preload")
    fixed = [name for name in names if given[name]]
    if fixed or wanted.count or wanted.node_list or wanted.partition or wanted.container:
        raise UsageError(
            f"{shown}: --resume on many nodes takes --repeat, --sbatch-arg and --detach; the record gives the rest"
        )
    folder = FleetDir(shown.absolute())
    statuses = Survey(folder).look()
    more = given["repeat"]
    left = {status.node for status in statuses if not status.live and (more or status.to_run)}
    fleet = folder.fleet()
    nodes = _usable(fleet, left)
    if not nodes and not any(status.live for status in statuses):
        click.echo("Nothing to do: no node that can run jobs has tasks left. A higher --repeat adds repeats.", err=True)
        return close(statuses, shown)
    if nodes:
        submit.check(fleet, nodes, os.environ, wanted.sbatch_args)
    if given["dry_run"]:
        return _show(fleet, nodes, folder.path)
    return _submit_and_wait(folder, nodes, detach, shown, wanted.sbatch_args, more)


def _usable(fleet: Fleet, left: set[str]) -> list[Node]:
    """What can be submitted of the folders that have tasks left. A line says what cannot."""
    from benchsuite.cluster import across, slurm
    from benchsuite.cluster.fleet import ACROSS

    known = slurm.nodes(fleet.partition)
    nodes = [node for node in known if node.name in left]
    for node in nodes:
        if not node.usable:
            click.echo(f"{node.name}: is {node.state} and cannot run jobs; it is left out", err=True)
    nodes = [node for node in nodes if node.usable]
    if ACROSS in left:
        if why := across.not_usable(fleet, known):
            click.echo(f"{why}; it is left out", err=True)
        else:
            nodes.append(across.together(fleet, known))
    return nodes


def _submit_and_wait(
    folder: FleetDir,
    nodes: Sequence[Node],
    detach: bool,
    shown: Path,
    more: Sequence[str] = (),
    repeats: int | None = None,
) -> int:
    from benchsuite.cluster import submit
    from benchsuite.cluster.survey import Survey
    from benchsuite.cluster.waiting import Waiting
    from benchsuite.commands._ending import end_or_leave, jobs_of
    from benchsuite.commands._nodes import NodesShown, close, quoted, say
    from benchsuite.describe.invocation import program
    from benchsuite.launch.interrupt import Interrupt

    with Interrupt() as interrupt:
        if nodes:
            count = submit.submit(folder, nodes, os.environ, more, repeats, interrupt.asked)
            say(f"{jobs_of(count)} submitted; script: {shown}/.cluster/submission-*.sh")
        if detach and not interrupt.asked():
            say(f"Watch: {program()} status {quoted(shown)}", f"End: {program()} stop {quoted(shown)}")
            return 0
        survey = Survey(folder)
        with NodesShown() as display:
            statuses = Waiting(survey, display.show, display.say, interrupt.asked).wait()
    if interrupt.signum is not None:
        end_or_leave(folder.fleet(), interrupt.signum, shown)
    return close(statuses, shown)
