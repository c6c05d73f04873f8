"""The command line. A command is found by the name of its file and imported only when it is called.

The file plan_stages.py is the command plan-stages.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import click

from benchsuite import commands
from benchsuite.errors import BenchError, Interrupted, nearest, one_line, reason

# The commands in the order of use, with the headings of the help. A command that is not named here comes last.
_SECTIONS = {
    "Measure": ("doctor", "prepare", "jobs", "status", "stop", "run", "share", "rerun", "health", "drive", "overhead"),
    "Read results": ("report", "plot", "summary", "verify", "trace", "bleu"),
    "Find out": ("list", "plan-stages", "completion"),
}
# What a shell shows for a command that SIGPIPE has ended.
READER_GONE = 128 + signal.SIGPIPE
_ORDER = [name for names in _SECTIONS.values() for name in names]


class _ReaderGone(Exception):
    """Whoever read the output has closed it. click would exit with 1 for a BrokenPipeError."""


@contextlib.contextmanager
def _pipes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _ReaderGone from None


class _Commands(click.Group):
    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _pipes():  # --help prints here
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        files = (m.name for m in pkgutil.iter_modules(commands.__path__))
        names = [file.replace("_", "-") for file in files if not file.startswith("_")]
        return sorted(names, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"benchsuite.commands.{name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command '{args[0]}'{nearest(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole summary, below the heading of its section."""
        names = self.list_commands(ctx)
        rest = tuple(name for name in names if name not in _ORDER)
        width = max(map(len, names))
        for heading, section in {**_SECTIONS, "More": rest}.items():
            found = [(name, self.get_command(ctx, name)) for name in section if name in names]
            rows = [(name.ljust(width), _summary(command)) for name, command in found if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _summary(command: click.Command) -> str:
    """The first sentence of a command's help, whole."""
    return command.get_short_help_str(limit=1000)


def _version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print "benchsuite 0.1.0 (1a2b3c4d5e6f+dirty)"; the version alone if the commit is not known."""
    if not asked or ctx.resilient_parsing:
        return
    from benchsuite.host.machine import code

    found = code()
    commit = f" ({found.commit[:12]}{'+dirty' if found.dirty else ''})" if found.commit else ""
    click.echo(f"benchsuite {found.version}{commit}")
    ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and commit."
)
def benchsuite() -> None:
    """Measure how fast this machine trains neural networks."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Each error is one line on stderr, and the exit status is that of the error.

    If the reader of the output has closed it, as `head` does, the exit status is 141: that of an end by SIGPIPE.

    Args:
        arguments: the words after the program's name; None for those of this process.
    """
    _open_closed()
    try:
        status = benchsuite.main(args=arguments, prog_name="benchsuite", standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(status)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "benchsuite"
        _say(f"{_message(error)} (see '{path} --help')")
        sys.exit(2)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(2)
    except (BenchError, Interrupted) as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except (_ReaderGone, BrokenPipeError):
        _hush()
        sys.exit(READER_GONE)
    except OSError as error:
        _say(f"{error.filename or 'output'}: {reason(error)}")
        _hush()
        sys.exit(2)
    except UnicodeEncodeError as error:
        _say(f"{error.object[:200]!a} is not UTF-8, so that no record can hold it; rename it")
        sys.exit(2)
    finally:
        # If the terminal is gone, the interpreter would try to flush again at its end and exit with 120.
        try:
            sys.stderr.flush()
        except OSError:
            _hush(sys.stderr)


def _message(error: click.UsageError) -> str:
    """What is wrong, in the words of click; an unknown option in those of `nearest`.

    `--version` is an option of `benchsuite` and of no command.
    """
    if isinstance(error, click.NoSuchOption):
        if error.option_name == "--version":
            return "No such option '--version'. The version: benchsuite --version"
        meant = nearest(error.option_name, error.possibilities) if error.possibilities else ""
        return f"No such option '{error.option_name}'{meant}"
    return error.format_message()


def _open_closed() -> None:
    """Replace stdout and stderr by the null device if the caller has closed them.

    A character that stdout cannot write, such as the bad bytes of a file's name, becomes "?".
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
            setattr(sys, name, stream)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _hush(stream: TextIO | None = None) -> None:
    """Redirect a stream that cannot be written any more to the null device: the interpreter flushes it at its end.

    Args:
        stream: stdout if None.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(f"benchsuite: {one_line(message)}", err=True)
