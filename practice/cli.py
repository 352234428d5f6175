"""The commands of `practice/judge.py`."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from course.cli.console import out, print_error, progress_line
from course.errors import CheckFailed, CourseError
from rich.table import Table
from rich.text import Text

from practice import answers, problems, verify
from practice.problems import Problem
from practice.progress import Attempt, Progress, read
from practice.sandbox import TEST_SECONDS, grade
from practice.show import show_result

TRIES = 3  # after which the solution may be looked at

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="A problem: see `list`.")]
Seconds = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Stop a test after so many s.")
]

app = typer.Typer(
    name="practice/judge.py",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 good, 1 an answer is not accepted, 2 wrong use.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    context: typer.Context,
    root: Annotated[
        Path | None, typer.Option(help="The course's folder.", hidden=True)
    ] = None,
) -> None:
    """Practice on small pieces of the engine: get a problem, write it, have it judged.

    Examples:

    * practice/judge.py list — the problems

    * practice/judge.py start page-allocator — the statement, and a file to write in

    * practice/judge.py check page-allocator — is it right?

    * practice/judge.py hint page-allocator — a question that helps
    """
    if root is not None:
        context.obj = root


@app.command("list")
def list_problems(context: typer.Context) -> None:
    """List the problems, and how far you are with each."""
    root = _root_of(context)
    progress, table = Progress.load(root), Table(box=None, pad_edge=False)
    for name in ("problem", "chapter", "level", "title", "you"):
        table.add_column(name, overflow="fold")
    for problem in _all(root):
        table.add_row(
            problem.slug,
            f"{problem.chapter:02d}",
            "*" * problem.difficulty,
            Text(problem.title),
            _state(progress.of(problem.slug)),
        )
    out().print(table)


@app.command()
def start(context: typer.Context, slug: Slug) -> None:
    """Show a problem's statement and make learn/practice/SLUG.py to write in.

    Examples:

    * practice/judge.py start page-allocator
    """
    root, console = _root_of(context), out()
    problem = _find(root, slug)
    path = answers.start(root, problem)
    console.print(Text(problem.title, style="bold"))
    console.print()
    if console.is_terminal:
        from rich.markdown import Markdown  # slow to load, and only used here

        console.print(Markdown(problem.statement))
    else:
        console.print(problem.statement, markup=False, end="")
    console.print()
    console.print(f"write in {path}", markup=False, soft_wrap=True)
    console.print(f"then     practice/judge.py check {slug}", markup=False)


@app.command()
def check(
    context: typer.Context,
    slug: Annotated[
        str | None, typer.Argument(metavar="SLUG", help="A problem: see `list`.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(help="Your answer [default: learn/practice/SLUG.py]."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every answer in learn/practice.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON.")
    ] = False,
    seconds: Seconds = TEST_SECONDS,
) -> None:
    """Judge an answer.

    It runs in a process of its own with limits on time and memory. Only the one file is
    read; it may import the standard library and the torch-free modules of minisgl as of
    the problem's chapter.

    Examples:

    * practice/judge.py check page-allocator

    * practice/judge.py check page-allocator ~/mine.py

    * practice/judge.py check --all
    """
    root = _root_of(context)
    if all_ == (slug is not None):
        raise CourseError(
            "check takes one problem, or --all", "practice/judge.py check SLUG"
        )
    progress = Progress.load(root)
    if slug is None:
        _check_all(root, progress, seconds)
        return
    problem = _find(root, slug)
    path = file or answers.place(root, slug)
    answer = answers.read(path, slug)
    with progress_line() as tell:
        result = grade(root, problem, answer, seconds=seconds, tick=tell)
    accepted = result["status"] == "accepted"
    progress.tried(slug, answer, accepted)
    progress.save()
    if as_json:
        print(json.dumps(result, indent=1))
        raise typer.Exit(0 if accepted else 1)
    show_result(out(), problem, result)
    if not accepted:
        raise CheckFailed(f"{slug}: not accepted", _help_for(progress, problem))


def _check_all(root: Path, progress: Progress, seconds: float) -> None:
    console = out()
    started = [p for p in _all(root) if answers.place(root, p.slug).exists()]
    if not started:
        raise CourseError(
            "there is no answer in learn/practice", "practice/judge.py start SLUG"
        )
    bad = []
    for problem in started:
        answer = answers.read(answers.place(root, problem.slug), problem.slug)
        with progress_line() as tell:
            tell(problem.slug)
            result = grade(root, problem, answer, seconds=seconds)
        accepted = result["status"] == "accepted"
        progress.tried(problem.slug, answer, accepted)
        mark = ("ok   ", "green") if accepted else ("FAIL ", "bold red")
        line = Text.assemble(mark, problem.slug, ": ", result["message"])
        console.print(line, soft_wrap=True)
        bad += [] if accepted else [problem.slug]
    progress.save()
    if bad:
        raise CheckFailed(
            f"{len(bad)} of {len(started)} answers are not accepted",
            f"practice/judge.py check {bad[0]}",
        )


@app.command()
def hint(context: typer.Context, slug: Slug) -> None:
    """Give a hint; ask again for the next one.

    Examples:

    * practice/judge.py hint page-allocator
    """
    root, console = _root_of(context), out()
    problem, progress = _find(root, slug), Progress.load(root)
    seen = min(progress.of(slug).hints + 1, len(problem.hints))
    progress.hinted(slug, seen)
    progress.save()
    for number, text in enumerate(problem.hints[:seen], 1):
        style = "" if number == seen else "dim"
        console.print(Text(f"hint {number} of {len(problem.hints)}: {text}", style))
    if seen < len(problem.hints):
        console.print(Text(f"more: practice/judge.py hint {slug}", style="dim"))


@app.command()
def solution(context: typer.Context, slug: Slug) -> None:
    """Show the solution, as a change to your answer.

    It is there once your answer was accepted, or after three tries.

    Examples:

    * practice/judge.py solution page-allocator
    """
    root, console = _root_of(context), out()
    problem, attempt = _find(root, slug), Progress.load(root).of(slug)
    if not attempt.accepted and attempt.tries < TRIES:
        raise CourseError(
            f"the solution of {slug} is shown once yours is accepted, or after "
            f"{TRIES} tries; this was try {attempt.tries}",
            f"practice/judge.py hint {slug}",
        )
    lines = difflib.unified_diff(
        attempt.answer.splitlines(keepends=True),
        problem.solution.splitlines(keepends=True),
        "your answer",
        "the solution",
    )
    if text := "".join(lines):
        from rich.syntax import Syntax  # slow to load, and only used here

        console.print(Syntax(text, "diff", background_color="default"))
    else:
        console.print("Your answer is the solution, to the letter.")


@app.command()
def apply(
    context: typer.Context,
    slug: Slug,
    to: Annotated[
        Path | None,
        typer.Option(help="Your workspace [default: learn/NN_chapter]."),
    ] = None,
) -> None:
    """Put an accepted answer into the package you write with tools/steps.py.

    Examples:

    * practice/judge.py apply page-allocator

    * practice/judge.py apply page-allocator --to ~/pool
    """
    from course.learner import default_workspace
    from course.manifest import Course

    from practice.apply import apply as put
    from practice.apply import must_have_place

    root, console = _root_of(context), out()
    problem = _find(root, slug)
    must_have_place(problem)
    answer = answers.read(answers.place(root, slug), slug)
    workspace = to or default_workspace(Course.load(root), problem.chapter)
    if not workspace.is_dir():
        raise CourseError(
            f"there is no folder {workspace}",
            f"tools/steps.py start {problem.chapter} makes it, or name one with --to",
        )
    with progress_line() as tell:
        result = grade(root, problem, answer, tick=tell)
    if result["status"] != "accepted":
        raise CheckFailed(
            f"{slug}: only an accepted answer goes into your package, and yours is "
            f"not: {result['message']}",
            f"practice/judge.py check {slug}",
        )
    written = put(problem, answer, workspace)
    for path in written:
        console.print(f"changed {workspace / path}", markup=False, soft_wrap=True)
    if not written:
        console.print("Your package has it already, to the letter.")


@app.command("verify")
def verify_problems(
    context: typer.Context,
    slugs: Annotated[
        list[str] | None, typer.Argument(metavar="SLUG", help="Problems; all if none.")
    ] = None,
) -> None:
    """Prove the problems: right answers are accepted, and nothing else is.

    What was proved before and has not changed is not tried again ("cached").

    Examples:

    * practice/judge.py verify

    * practice/judge.py verify page-allocator
    """
    root, console = _root_of(context), out()
    chosen = [_find(root, slug) for slug in slugs or []] or _all(root)
    with progress_line() as tell:
        counts = {problem.slug: 0 for problem in chosen}

        def ended(outcome: verify.Outcome) -> None:
            counts[outcome.case.problem.slug] += 1
            tell(f"{sum(counts.values())} answers tried")

        outcomes = verify.run(root, chosen, ended)
    faults = [outcome for outcome in outcomes if outcome.fault]
    table = Table("problem", "answers", "faults", box=None, pad_edge=False)
    for problem in chosen:
        bad = sum(outcome.case.problem is problem for outcome in faults)
        tried = str(counts[problem.slug] or "cached")
        table.add_row(problem.slug, tried, str(bad or "none"))
    console.print(table)
    for outcome in faults:
        where = f"{outcome.case.problem.slug}, {outcome.case.name}: "
        console.print(Text.assemble((where, "bold red"), outcome.fault))
    if faults:
        raise CheckFailed(
            f"{len(faults)} of {len(outcomes)} answers fare as they must not",
            f"practice/judge.py verify {faults[0].case.problem.slug}",
        )
    cached = sum(not count for count in counts.values())
    console.print(
        f"{len(outcomes)} answers fare as they must; {cached} problems cached",
        style="green",
    )


@app.command("progress")
def show_progress(
    context: typer.Context,
    export: Annotated[
        Path | None, typer.Option(help="Write it to a file, for the browser or so.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Take in a file of progress.")
    ] = None,
) -> None:
    """Show how far you are; export it, or take in what you did in the browser.

    What was accepted on either side stays accepted.

    Examples:

    * practice/judge.py progress

    * practice/judge.py progress --import ~/Downloads/progress.json
    """
    root, console = _root_of(context), out()
    progress = Progress.load(root)
    if import_ is not None:
        progress.merge(read(import_))
        progress.save()
    if export is not None:
        progress.export(export)
    known = _all(root)
    done = [p for p in known if progress.of(p.slug).accepted]
    tried = [p for p in known if progress.of(p.slug).tries and p not in done]
    console.print(f"{len(done)} of {len(known)} problems accepted")
    for problem in tried:
        console.print(f"  {problem.slug}: {_state(progress.of(problem.slug))}")
    if following := [p for p in known if p not in done]:
        console.print(f"next: practice/judge.py start {following[0].slug}")


def _root_of(context: typer.Context) -> Path:
    return Path(context.find_root().obj).resolve()


def _all(root: Path) -> list[Problem]:
    found = problems.load_all(root)
    if not found:
        raise CourseError(
            f"there are no problems in {root / problems.PROBLEMS}",
            "get the whole project; docs/practice-judge.md says how to write one",
        )
    return found


def _find(root: Path, slug: str) -> Problem:
    """The problem called `slug`; an error names what could be meant."""
    names = problems.slugs(root)
    if slug in names:
        return problems.load(root / problems.PROBLEMS / slug)
    near = difflib.get_close_matches(slug, names, n=3, cutoff=0.4)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise CourseError(
        f"there is no problem {slug!r}{meant}", "practice/judge.py list shows them all"
    )


def _state(attempt: Attempt) -> str:
    if attempt.accepted:
        return "accepted"
    if not attempt.tries:
        return ""
    return f"{attempt.tries} {'try' if attempt.tries == 1 else 'tries'}"


def _help_for(progress: Progress, problem: Problem) -> str:
    """The command that helps on: hints first, then the solution."""
    attempt = progress.of(problem.slug)
    if attempt.hints < len(problem.hints) or attempt.tries < TRIES:
        return f"practice/judge.py hint {problem.slug}"
    return f"practice/judge.py solution {problem.slug}"


def main(root: Path, argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (else `sys.argv`) on the course in `root`."""
    try:
        app(list(sys.argv[1:] if argv is None else argv), obj=root)
    except CourseError as error:
        print_error(error)
        return error.exit_code
    except OSError as error:
        print_error(CourseError(str(error), "check the disk and its permissions"))
        return 2
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0
