"""Benchmarks of minisgl, on this machine.

tools/bench.py tree                     the radix tree against a textbook version
tools/bench.py tree --trace e --rounds 5
tools/bench.py decode                   a decode step against transformers' generate
tools/bench.py unified                  the unified tree against the radix tree
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
    from benchmarks.traces import build_trace

    names = _known_traces(trace)
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


@app.command()
def unified(
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
    """Compare the unified tree, with each set of components, with the radix tree.

    The same traces and steps as in `tree`. A window is 512 tokens, and its pool as
    large as the full one; states are taken at the end of a prompt and at branching
    points. A bracket holds how many times as long as the radix tree it takes.
    """
    from benchmarks import unified as bench
    from benchmarks.traces import build_trace

    names = _known_traces(trace)
    columns = ["trace", "page", "radix", *bench.SETS]
    title = "µs per request; tokens hit, if that is another number"
    table = Table(*columns, title=title)
    with Progress(console=console, transient=True) as progress:
        for name in names:
            requests = build_trace(name)
            for size in page_size or [1, 16]:
                total = (1 + len(bench.SETS)) * rounds * len(requests.prompts)
                task = progress.add_task(f"{name}, page size {size}", total=total)
                row = bench.compare(
                    requests, size, rounds, lambda task=task: progress.advance(task)
                )
                progress.remove_task(task)
                base, *others = row.us_per_request
                cells = [f"{base:.1f}\n{row.hits[0]:,}"]
                for us, hits in zip(others, row.hits[1:], strict=True):
                    note = "" if hits == row.hits[0] else f"\n{hits:,}"
                    cells.append(f"{us:.1f} ({us / base:.2f} ×){note}")
                table.add_row(f"({name}) {requests.title}", str(size), *cells)
    console.print(table)
    table = Table(
        "leaves", *bench.SETS, title="µs to evict one leaf, driven by the last"
    )
    for num_leaves in (1_000, 100_000):
        costs = [bench.measure_evict(name, num_leaves) for name in bench.SETS]
        table.add_row(f"{num_leaves:,}", *(f"{cost:.2f}" for cost in costs))
    console.print(table)


def _known_traces(names: list[str] | None) -> list[str]:
    """The traces asked for, or all. Stops with a message at an unknown one."""
    from benchmarks.traces import TRACES

    for name in names or ():
        if name not in TRACES:
            known = ", ".join(TRACES)
            raise typer.BadParameter(f"no trace {name}; there are {known}")
    return names or list(TRACES)


if __name__ == "__main__":
    app()
