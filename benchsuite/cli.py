"""The front door: finds a command by its file's name and imports it only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
from pathlib import Path
from typing import TextIO

import click

from benchsuite import __version__, commands, errors
from benchsuite.errors import BenchError, Interrupted, one_line

# In the order of work; a command that is not named here comes last.
_ORDER = ("doctor", "prepare", "jobs", "stop", "report", "plot", "summary", "verify", "run", "rerun", "list")


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [module.name for module in pkgutil.iter_modules(commands.__path__)]
        return sorted(names, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"benchsuite.commands.{name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="benchsuite")
def benchsuite() -> None:
    """Measure how fast this machine trains neural networks."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every message for the user is one line on stderr, and the exit status tells the outcome."""
    _open_closed()
    try:
        sys.exit(benchsuite.main(args=arguments, prog_name="benchsuite", standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "benchsuite"
        _say(f"{error.format_message()} (see '{path} --help')")
        sys.exit(2)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(2)
    except (BenchError, Interrupted) as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _hush()
        sys.exit(1)
    except OSError as error:
        _say(f"{error.filename or 'output'}: {errors.reason(error)}")
        _hush()
        sys.exit(2)
    finally:
        # What the terminal did not take, as it is gone, the interpreter would try again, and end with 120.
        try:
            sys.stderr.flush()
        except OSError:
            _hush(sys.stderr)


def _open_closed() -> None:
    """A stream that the caller has closed takes what is said, and keeps none of it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
            setattr(sys, name, stream)


def _hush(stream: TextIO | None = None) -> None:
    """Nothing more can be written, to stdout by default: keep the interpreter from trying at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(f"benchsuite: {one_line(message)}", err=True)
