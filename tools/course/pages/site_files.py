"""Files of the site that are no pages: whole files of every stage, browser bundle.

A version of a file, `code/08/kvcache/radix_tree.py.html`, is there for each chapter
that adds or changes it: the file as of that chapter, and below it what changed. These
are plain HTML and do not go through the theme: there are many, and nothing is searched
in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from course.manifest import Chapter
from course.pages.content import Contents
from course.pages.render import CODE, code_url, colour, page_url

BROWSER = "assets/practice"  # where the files of build/web go
STYLE = f"{CODE}/code.css"
_LIGHT, _DARK = "xcode", "github-dark"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{path} as of chapter {number}</title>
<link rel="stylesheet" href="{root}{style}">
</head>
<body>
<header>
<p>{back}</p>
<h1><code>{path}</code> as of chapter {number}</h1>
<p>{versions}{jump}</p>
</header>
<main>
{code}
{diff}
</main>
</body>
</html>
"""


def site_files(contents: Contents) -> Iterator[tuple[str, str]]:
    """(path on the site, content) of every version of every file, and their style."""
    yield STYLE, _style()
    for chapter in contents.course.chapters:
        for path in contents.stages.changed(chapter.number):
            yield code_url(chapter, path), _version(contents, chapter, path)


def browser_files(root: Path) -> list[tuple[str, Path]]:
    """(path on the site, file) of what tools/browser.py built; none if it has not."""
    built = root / "build" / "web"
    if not (built / "manifest.json").is_file():
        return []
    return [
        (f"{BROWSER}/{file.relative_to(built).as_posix()}", file)
        for file in sorted(built.rglob("*"))
        if file.is_file()
    ]


def _version(contents: Contents, chapter: Chapter, path: str) -> str:
    stages = contents.stages
    url = code_url(chapter, path)
    root = "../" * url.count("/")
    is_new = path not in stages.before(chapter.number)
    title = f"Chapter {chapter.number}: {escape(chapter.title)}"
    href = root + page_url(chapter.page) if chapter.page else root or "./"
    diff = ""
    if not is_new:
        changes = stages.stack.shown_diff(chapter.number, path).decode().splitlines()
        diff = f'<h2 id="diff">What chapter {chapter.number} changes in it</h2>'
        diff += colour(changes, "diff")
    said = (
        f"chapter {c.number}"
        if c == chapter
        else f'<a href="{root}{code_url(c, path)}">chapter {c.number}</a>'
        for c in stages.versions(path)
    )
    page = _PAGE.format(
        path=escape(path),
        number=chapter.number,
        root=root,
        style=STYLE,
        back=f'<a href="{href}">{title}</a>',
        versions=f"New or changed in {', '.join(said)}.",
        jump=' <span id="diff">The whole file is new.</span>'
        if is_new
        else ' <a href="#diff">What changed</a>',
        code=_numbered(contents, chapter, path, is_new),
        diff=diff,
    )
    return page.replace("<pre>", '<pre tabindex="0">')  # long lines scroll


def _numbered(contents: Contents, chapter: Chapter, path: str, is_new: bool) -> str:
    """The file with an anchor for each line (`#L-12`); added lines are marked."""
    text = contents.stages.text(chapter.number, path)
    added = () if is_new else sorted(contents.stages.added(chapter.number, path))
    lexer = get_lexer_by_name("python" if path.endswith(".py") else "text")
    formatter = HtmlFormatter(
        cssclass="highlight", wrapcode=True, linespans="L", hl_lines=added
    )
    return highlight(text.text, lexer, formatter)


def _style() -> str:
    light = HtmlFormatter(style=_LIGHT).get_style_defs(".highlight")
    dark = HtmlFormatter(style=_DARK).get_style_defs(".highlight")
    own = Path(__file__).with_name("code.css").read_text(encoding="utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}"
