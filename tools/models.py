#!/usr/bin/env python3
"""Command line of the models: list them, get one, say where one is."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars
    from rich.table import Table
except ModuleNotFoundError as error:
    sys.exit(
        f"{sys.executable} has no {error.name}\n"
        "next: make .venv/.stamp, then .venv/bin/python tools/models.py …"
    )

from course import model_get, models
from course.models import MB, ModelError, ModelSpec, ModelUsageError

# Results go to stdout, everything else to stderr: `path` can be used in a script.
messages = Console(stderr=True, highlight=False)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[
    str, typer.Argument(help="smollm2, gemma3, or a model directory of your own.")
]


@app.callback()
def main() -> None:
    """Real language models for the course.

    Models are kept in models/, or in $MINISGL_MODELS; verified downloads in
    build/downloads/.

    \b
    Examples:
      tools/models.py list
      tools/models.py get smollm2
      tools/models.py get gemma3 --accept-terms
      tools/models.py path smollm2
      MINISGL_MODELS=/data/models tools/models.py get smollm2
    """


@app.command("list")
def list_models() -> None:
    """Show the models there are, their size and licence, and whether they are here.

    \b
    Example:
      tools/models.py list
    """
    root = models.models_dir()
    console = Console(highlight=False)
    table = Table("name", "model", "download", "on disk", "here", show_lines=True)
    for spec in models.MODELS:
        about = (spec.directory, spec.summary, spec.precision, spec.licence)
        table.add_row(
            spec.name,
            "\n".join(about),
            f"{spec.download_num_bytes / MB:,.0f} MB",
            f"{spec.converted_num_bytes / MB:,.0f} MB",
            _presence(spec),
        )
    console.print(table)
    typer.echo(f"directory: {root}")


@app.command()
def get(
    name: Name,
    accept_terms: Annotated[
        bool,
        typer.Option(
            "--accept-terms", help="Agree to the model's terms (for scripts)."
        ),
    ] = False,
) -> None:
    """Download, verify and convert a model, and print its directory.

    Run it again after a failure: what is already downloaded is kept. A model that is
    there is left alone.

    \b
    Examples:
      tools/models.py get smollm2
      tools/models.py get gemma3 --accept-terms
    """
    spec = models.find(name)
    if spec is None:
        path = models.resolve(name)
        messages.print("this is a model directory already", style="green")
    elif models.is_there(spec, models.models_dir()):
        path = models.resolve(name)
        messages.print(f"{spec.name} is already there", style="green")
    else:
        _agree(spec, accept_terms)
        path = _get_with_report(spec)
        messages.print(f"{spec.name} is ready", style="green")
    typer.echo(path)


@app.command()
def path(name: Name) -> None:
    """Print the directory of a model, and nothing else.

    \b
    Examples:
      tools/models.py path smollm2
      ls "$(tools/models.py path smollm2)"
      tools/models.py path ~/my-model
    """
    typer.echo(models.resolve(name))


class Report(model_get.Progress):
    """Steps as they come: live bars on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=messages,
        )
        self.task: TaskID | None = None
        self.total_bytes: int | None = None

    def __enter__(self) -> Report:
        if messages.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if messages.is_terminal:
            if kind is None:
                self._finish()
            self.bars.stop()

    def step(self, text: str, total_bytes: int | None = None) -> None:
        if not messages.is_terminal:
            size = f" ({total_bytes / MB:,.1f} MB)" if total_bytes else ""
            typer.echo(f"{text}{size}", err=True)
            return
        self._finish()
        self.total_bytes = total_bytes
        self.task = self.bars.add_task(text, total=total_bytes, amount="")

    def at(self, done_bytes: int) -> None:
        if self.task is not None:
            amount = f"{done_bytes / MB:.0f} of {(self.total_bytes or 0) / MB:.0f} MB"
            self.bars.update(self.task, completed=done_bytes, amount=amount)

    def _finish(self) -> None:
        """The present step is over, whether its size was known or not."""
        if self.task is not None:
            total = self.total_bytes or 1
            self.bars.update(self.task, total=total, completed=total)


def _get_with_report(spec: ModelSpec) -> Path:
    try:
        with Report() as report:
            return model_get.get(spec, progress=report)
    except KeyboardInterrupt:
        typer.echo(
            "interrupted; nothing unfinished was left behind\n"
            "next: run the same command again, complete downloads are kept",
            err=True,
        )
        raise typer.Exit(130) from None


def _presence(spec: ModelSpec) -> str:
    try:
        return "yes" if models.is_there(spec, models.models_dir()) else "no"
    except ModelError:
        return "broken"


def _agree(spec: ModelSpec, accept_terms: bool) -> None:
    if spec.terms is None:
        return
    typer.echo(spec.terms, err=True)
    if accept_terms:
        typer.echo("Agreed to by --accept-terms.", err=True)
        return
    if not sys.stdin.isatty():
        raise ModelUsageError(
            "nobody is here to be asked, so nothing was downloaded\n"
            f"next: if you agree, {models.command(f'get {spec.name} --accept-terms')}"
        )
    if not typer.confirm("Do you agree?", err=True):
        raise ModelError("not agreed to, so nothing was downloaded")


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    try:
        app()
    except ModelError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
