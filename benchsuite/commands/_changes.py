"""A command whose line may end in `-- CHANGES`: job fields and parameters of the model."""

from __future__ import annotations

from collections.abc import Sequence

import click

from benchsuite.commands._examples import WithExamples

_HELP = {"--help", "-h"}


class WithChanges(WithExamples):
    """Keeps all words after the first `--` as its parameter `changes`.

    An unknown option that is a job field or a parameter of a model is answered with the line that sets it. `-- --help`
    prints what may stand after `--`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        before, after = args[:end], args[end + 1 :]
        given = list(before)
        if _HELP & set(after) and not ctx.resilient_parsing:
            _print_help(before)
            ctx.exit()
        if ctx.resilient_parsing and before and self._takes_value(before[-1]):
            before.pop()  # its value is being completed, and click would read nothing of a line that lacks it
        try:
            super().parse_args(ctx, before)
        except click.NoSuchOption as error:
            if remedy := self._remedy(ctx, error, given, after):
                raise click.UsageError(remedy, ctx) from None
            raise
        ctx.params["changes"] = (*(ctx.params.get("changes") or ()), *after)
        return ctx.args

    def _takes_value(self, word: str) -> bool:
        return any(word in p.opts and isinstance(p, click.Option) and not p.is_flag for p in self.params)

    def _remedy(
        self, ctx: click.Context, error: click.NoSuchOption, before: Sequence[str], after: Sequence[str]
    ) -> str | None:
        """The message for an option that belongs behind `--`; None for any other."""
        import shlex

        from benchsuite.describe import entries
        from benchsuite.describe.overrides import FIELDS

        known = {*FIELDS, *(name for model in entries.names() for name in entries.declared(model, None).parameters)}
        if _field(error.option_name) not in known:
            return None
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        kept, moved, rest = list[str](), list[str](), list(before)
        while rest:
            word = rest.pop(0)
            if not word.startswith("--") or word.partition("=")[0] in own or _field(word) not in known:
                kept.append(word)
                continue
            moved.append(word)
            if "=" not in word and rest and not rest[0].startswith("-"):
                moved.append(rest.pop(0))
        line = shlex.join([*ctx.command_path.split(), *kept, "--", *moved, *after])
        return f"No such option '{error.option_name}'. Job fields and parameters of a model come after --: {line}"


def _field(option: str) -> str:
    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    return name.removeprefix("no_")


def _print_help(words: Sequence[str]) -> None:
    """Print the job fields, and the parameters of the models that the words name: a model, or the jobs of a profile."""
    from benchsuite.describe import changeable

    for line in changeable.lines(words):
        click.echo(line)
