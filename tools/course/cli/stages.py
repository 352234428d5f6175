"""Commands that look at stages: list, tree, show, build, verify, pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.tree import Tree

from course.cli.console import load_course, out, progress_line
from course.errors import CheckFailed, CourseError
from course.manifest import MANIFEST, Chapter
from course.pages.check import Checker
from course.pages.content import Contents
from course.stack import PACKAGE, Stack
from course.verify import Problem, Result
from course.verify import verify as verify_course

Number = Annotated[int, typer.Argument(metavar="N", help="A chapter number.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_chapters)
    app.command("tree")(tree)
    app.command("show")(show)
    app.command("build")(build)
    app.command("verify")(verify)
    app.command("pages")(pages)


def list_chapters(context: typer.Context) -> None:
    """The chapters, part by part.

    Example: tools/steps.py list
    """
    course = load_course(context)
    table = Table(box=None, pad_edge=False)
    for column in ("no.", "slug", "title", "part", "patch"):
        table.add_column(column, overflow="fold")
    for chapter in course.chapters:
        has_patch = (course.root / chapter.patch).exists()
        table.add_row(
            f"{chapter.number:02d}",
            chapter.slug,
            escape(chapter.title),
            escape(chapter.part),
            chapter.patch if has_patch else "(none yet)",
        )
    out().print(table)


def tree(context: typer.Context, number: Number) -> None:
    """The files of stage N; + is new in chapter N, ~ is changed there.

    Example: tools/steps.py tree 3
    """
    course = load_course(context)
    stack = Stack(course)
    before, after = stack.files(course.previous(number)), stack.files(number)
    top = Tree(f"{PACKAGE}/ at chapter {course.chapter(number).label}")
    folders = {PACKAGE: top}
    for path, content in after.items():
        branch = _branch(folders, path.rsplit("/", 1)[0])
        branch.add(_marked(path.rsplit("/", 1)[1], before.get(path), content))
    for path in sorted(set(before) - set(after)):
        branch = _branch(folders, path.rsplit("/", 1)[0])
        branch.add(f"[red]- {escape(path.rsplit('/', 1)[1])}[/]")
    out().print(top)


def show(
    context: typer.Context,
    number: Number,
    path: Annotated[
        str | None, typer.Argument(help="Only this file or folder of minisgl.")
    ] = None,
) -> None:
    """What chapter N changes, as a diff.

    Examples: tools/steps.py show 3; tools/steps.py show 3 kvcache/page_allocator.py
    """
    course = load_course(context)
    stack = Stack(course)
    text = stack.shown_diff(number, path)
    if sys.stdout.isatty():
        out().print(Syntax(text.decode(), "diff", background_color="default"))
    else:
        sys.stdout.buffer.write(text)


def build(
    context: typer.Context,
    number: Number,
    to: Annotated[
        Path | None, typer.Option(help="An absent or empty folder.", metavar="DIR")
    ] = None,
) -> None:
    """Write the package as it stands at chapter N into a folder.

    Examples: tools/steps.py build 3; tools/steps.py build 3 --to /tmp/stage3
    """
    course = load_course(context)
    stack = Stack(course)
    dest = to or course.root / "build" / "stages" / course.chapter(number).stem
    if to is None and _holds(dest, stack.files(number)):
        out().print(f"{dest} is up to date", markup=False, soft_wrap=True)
        return
    try:
        stack.export(number, dest)
    except OSError as error:
        raise CourseError(
            f"cannot write {dest}: {error.strerror}", "name another folder with --to"
        ) from None
    out().print(f"wrote {dest / PACKAGE}", markup=False, soft_wrap=True)


def verify(context: typer.Context) -> None:
    """Prove, without running a model, that patches, minisgl/ and chapters fit together.

    A rule about stages that could not be built is marked "skip".

    Example: tools/steps.py verify
    """
    course = load_course(context)
    num_bad = 0
    with progress_line() as progress:
        for result in verify_course(course, progress):
            num_bad += not result.is_good
            print_result(result)
    if num_bad:
        rules = "1 rule is" if num_bad == 1 else f"{num_bad} rules are"
        raise CheckFailed(f"{rules} broken", "see what to do under each, above")


def pages(
    context: typer.Context,
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="N", help="Only these chapters.")
    ] = None,
) -> None:
    """Check what the chapters' pages show and say against their stages.

    Examples: tools/steps.py pages; tools/steps.py pages 3
    """
    course = load_course(context)
    contents = Contents(course)
    paths = [_page_of(course.chapter(number)) for number in numbers or ()]
    checker = Checker(contents, paths or None)
    num_bad = 0
    for rule, check in checker.rules():
        problems = [Problem(error.message, error.hint) for error in check()]
        num_bad += bool(problems)
        count = len(checker.paths)
        covered = f"{count} page{'s' * (count != 1)}"
        print_result(Result(rule, covered, problems))
    if num_bad:
        rules = "1 rule is" if num_bad == 1 else f"{num_bad} rules are"
        raise CheckFailed(f"{rules} broken", "see what to do under each, above")


def _page_of(chapter: Chapter) -> str:
    if chapter.page:
        return chapter.page
    raise CourseError(
        f"chapter {chapter.label} has no page",
        f'write docs/{chapter.stem}.md and give the chapter page = "docs/'
        f'{chapter.stem}.md" in {MANIFEST}',
    )


def print_result(result: Result) -> None:
    """A rule and whether it holds; below it, what to do about each problem."""
    mark = "[green]ok  [/]" if result.is_complete else "[yellow]skip[/]"
    if not result.is_good:
        mark = "[bold red]FAIL[/]"
    out().print(f"{mark} {result.rule} [dim]({result.covered})[/]", soft_wrap=True)
    for problem in result.problems:
        out().print(f"     {problem.message}", markup=False, soft_wrap=True)
        out().print(f"       next: {problem.hint}", markup=False, soft_wrap=True)


def _branch(folders: dict[str, Tree], folder: str) -> Tree:
    """The node of a folder, made with its parents when first needed."""
    if folder not in folders:
        parent, name = folder.rsplit("/", 1)
        folders[folder] = _branch(folders, parent).add(escape(f"{name}/"))
    return folders[folder]


def _marked(name: str, before: bytes | None, after: bytes) -> str:
    name = escape(name)
    if before is None:
        return f"[green]+ {name}[/]"
    return f"  {name}" if before == after else f"[yellow]~ {name}[/]"


def _holds(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether `folder` holds exactly these files."""
    if not folder.is_dir():
        return False
    found = {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    return found == files
