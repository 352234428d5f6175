"""Benchmarks of minisgl, on this machine.

tools/bench.py tree                     the radix tree against a textbook version
tools/bench.py tree --trace e --rounds 5
tools/bench.py decode                   a decode step against transformers' generate
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # measure this checkout, whatever is installed

app = typer.Typer(help=__doc__, no_args_is_help=True, rich_markup_mode=None)
console = Console()


@app.callback()
def main() -> None:
    """Benchmarks of minisgl, on this machine."""


@app.command()
def tree(
    trace: Annotated[
        list[str] | None, typer.Option(help="a, b, c, d or e; may be repeated.")
    ] = None,
    page_size: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated; 1 and 16 if not.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Each request counts its least time.")
    ] = 3,
) -> None:
    """Compare the radix tree with a textbook version that uses tensors.

    Every request is match, lock, evict if the pool runs short, insert, unlock. Both
    sides see the same requests and must agree on every hit and every eviction.
    Keys are packed (or made tensors) once per request, outside the measured time.
    """
    from benchmarks import tree as bench
    from benchmarks.traces import TRACES, build_trace

    names = trace or list(TRACES)
    unknown = [name for name in names if name not in TRACES]
    if unknown:
        raise typer.BadParameter(
            f"no trace {unknown[0]}; there are {', '.join(TRACES)}"
        )
    table = Table(title="µs per request, and what both caches agree on")
    for column in ["trace", "page", "hit tokens", "evicted", "ours", "textbook", "×"]:
        table.add_column(column, no_wrap=True, justify="right")
    with Progress(console=console, transient=True) as progress:
        for name in names:
            requests = build_trace(name)
            for size in page_size or [1, 16]:
                label = f"{name}, page size {size}"
                total = 2 * rounds * len(requests.prompts)
                task = progress.add_task(label, total=total)
                ours, textbook = bench.compare(
                    requests, size, rounds, lambda task=task: progress.advance(task)
                )
                progress.remove_task(task)
                table.add_row(
                    f"({name}) {requests.title}",
                    str(size),
                    f"{sum(ours.hits):,}",
                    f"{len(ours.evicted):,}",
                    f"{ours.us_per_request:.1f}",
                    f"{textbook.us_per_request:.0f}",
                    f"{textbook.us_per_request / ours.us_per_request:.1f}",
                )
    console.print(table)
    _print_evict_costs(bench)


@app.command()
def decode(
    model: Annotated[
        str, typer.Option(help="A name of tools/models.py, or a model directory.")
    ] = "smollm2",
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated; 1, 4, 16 if not.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often the three take turns.")
    ] = 5,
    threads: Annotated[int, typer.Option(min=1, help="For all three alike.")] = 1,
) -> None:
    """Compare a decode step with transformers' generate, and with its floor.

    The floor multiplies the same weight matrices once by a batch of the same size. All
    three run in this process and take turns; a figure is the median over all steps.
    """
    import torch
    import transformers
    from benchmarks.decode import NUM_STEPS, PROMPT_LEN, Subjects
    from course.models import ModelError, resolve

    torch.set_num_threads(threads)
    transformers.logging.disable_progress_bar()
    try:
        subjects = Subjects(resolve(model))
    except ModelError as error:
        raise typer.BadParameter(str(error)) from None
    table = Table(
        "batch", "floor ms", "ours ms", "generate ms", "ours ÷ floor", "generate ÷ ours"
    )
    with Progress(console=console, transient=True) as progress:
        for size in batch or [1, 4, 16]:
            task = progress.add_task(f"batch of {size}", total=rounds + 1)
            times = subjects.measure(
                size, rounds, lambda task=task: progress.advance(task)
            )
            progress.remove_task(task)
            floor, ours, generate = times.medians()
            table.add_row(
                str(size),
                f"{floor:.1f}",
                f"{ours:.1f}",
                f"{generate:.1f}",
                f"{ours / floor:.3f}",
                f"{generate / ours:.3f}",
            )
    console.print(table)
    console.print(
        f"prompts of {PROMPT_LEN} tokens, {NUM_STEPS} decode steps, {threads} thread(s)"
    )


def _print_evict_costs(bench: ModuleType) -> None:
    sizes = [1_000, 100_000]
    table = Table(
        "leaves",
        "never locked",
        "released in random order",
        title="µs to evict one leaf",
    )
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("evicting one leaf", total=2 * sum(sizes))
        for num_leaves in sizes:
            cost = bench.measure_evict(num_leaves, lambda: progress.advance(task))
            table.add_row(
                f"{num_leaves:,}", f"{cost.fresh_us:.2f}", f"{cost.released_us:.2f}"
            )
    console.print(table)


if __name__ == "__main__":
    app()
