"""How what a directive shows looks: HTML, or Markdown where words are in it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePosixPath

from markdown import Markdown
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from course.errors import CourseError
from course.manifest import Chapter
from course.pages.content import DOCS, Contents, Listing, self_test
from course.pages.drawing import DrawingError, draw, parse_tree
from course.pages.errors import nearest
from course.pages.live import LiveError, kinds, played
from course.pages.problems import Problem, load_problem, problems, slugs
from course.pages.runs import RUNS, Run
from course.pages.stages import HEAD
from course.pages.syntax import Directive, Inline, Page
from course.stack import PACKAGE

ROOT = "site-root:"  # in links; the extension knows how far away the root is
CODE = "code"  # where the pages of whole files are, below the site's root
_LEVELS = {1: "easy", 2: "medium", 3: "hard"}


class Html(str):
    """HTML that goes into the page as it is; a plain str is Markdown."""


class Renderer:
    """Renders directives and inline figures of any page of the course.

    Everything may raise `PageError`, which names page and line.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.course, self.stages = contents.course, contents.stages

    def directive(self, page: Page, directive: Directive) -> str:
        """What stands in the page in place of a directive: `Html`, or Markdown."""
        method = directive.name.replace("-", "_")
        return getattr(self, f"_{method}")(page, directive)

    def inline(self, page: Page, item: Inline) -> Html:
        """What stands in place of `{{…}}`."""
        if item.kind == "elsewhere":
            title = f"not in this chapter's code: {item.source}"
            return Html(f"<code{_titled(title)}>{escape(item.value)}</code>")
        value = escape(self.contents.inline(page, item))
        if item.kind == "run":
            recorded = self.contents.recorded(item.value.partition(".")[0])
            title = f"recorded {recorded.date} on {recorded.machine}"
        elif item.kind == "out":
            title = "as the chapter's example prints it"
        else:
            title = item.source or ""
        return Html(f'<span class="figure-{item.kind}"{_titled(title)}>{value}</span>')

    # Listings

    def _code(self, page: Page, directive: Directive) -> Html:
        chapter = self.contents.need_chapter(page, directive)
        listing = self.contents.listing(page, directive)
        what = self._state(chapter, listing)
        return self._listing(listing, what, self._links(chapter, listing))

    def _example(self, page: Page, directive: Directive) -> Html:
        return self._listing(self.contents.listing(page, directive))

    def _test(self, page: Page, directive: Directive) -> Html:
        return self._listing(self.contents.listing(page, directive))

    def _output(self, page: Page, directive: Directive) -> Html:
        listing = self.contents.listing(page, directive)
        chapter = self.contents.need_chapter(page, directive)
        caption = f"<code>{escape(chapter.example)}</code> prints"
        return _figure("output", caption, colour(_lines(listing), "text"))

    def _run(self, page: Page, directive: Directive) -> Html:
        listing = self.contents.listing(page, directive)
        recorded = self.contents.recorded(directive.words[0])
        command = " ".join(["python", *recorded.run.command])
        caption = (
            f"<code>{escape(command)}</code> printed "
            f'<span class="listing-state">({recorded.date}, '
            f"{escape(recorded.machine)})</span>"
        )
        output = colour(_lines(listing), "text")
        return _figure("output", caption, output + self._script(recorded.run))

    def _script(self, run: Run) -> str:
        """The script of a run, folded; nothing for a tool of the repository."""
        path = run.command[0]
        if not path.startswith(f"{RUNS}/"):
            return ""
        source = self.stages.repo_text(path).lines
        return _folded(f"<code>{path}</code>", colour(source, "python"))

    def _diff(self, page: Page, directive: Directive) -> Html:
        chapter = self.contents.need_chapter(page, directive)
        path, text = self.contents.diff(page, directive)
        kept = [t for t in text.splitlines() if not _is_diff_head(t)]
        links = ""
        if path in self.stages.files(chapter.number):
            links = self._file_links(chapter, path)
        caption = f"<code>{path}</code> as this chapter changes it"
        return _figure("diff", caption, colour(kept, "diff"), links)

    def _listing(self, listing: Listing, state: str = "", links: str = "") -> Html:
        names = "".join(f" · {_title_of(name)}" for name in listing.names)
        caption = f"<code>{escape(listing.path)}</code>{names}"
        if state:
            caption += f' <span class="listing-state">({state})</span>'
        lexer = "python" if listing.path.endswith(".py") else "text"
        return _figure("code", caption, colour(_lines(listing), lexer), links)

    def _state(self, chapter: Chapter, listing: Listing) -> str:
        """Where the shown lines go: new, changed, or since when they are there."""
        number, path, names = chapter.number, listing.path, list(listing.names)
        if path not in self.stages.before(number):
            return "in a new file"
        last = self.stages.since(number, path, names)
        if last.number != number:
            return f"unchanged since chapter {last.number}"
        if not names or not self.stages.is_new(number, path, names):
            return "changed in this chapter"
        above = self.stages.text(number, path).before(names[0])
        after = f", goes after <code>{escape(above)}</code>" if above else ""
        return f"new in this chapter{after}"

    def _links(self, chapter: Chapter, listing: Listing) -> str:
        line = listing.spans[0].first if listing.spans else 1
        return self._file_links(chapter, listing.path, f"#L-{line}")

    def _file_links(self, chapter: Chapter, path: str, anchor: str = "") -> str:
        now = self.stages.version(chapter.number, path)
        last = self.stages.versions(path)[-1]
        links = [(code_url(now, path) + anchor, "as of this chapter")]
        if path in self.stages.files(self.course.last.number):
            links.append((code_url(last, path), "finished"))
        if now.number == chapter.number:
            links.append((code_url(now, path) + "#diff", "diff"))
        shown = " ".join(f'<a href="{ROOT}{url}">{text}</a>' for url, text in links)
        return f'<span class="listing-links">{shown}</span>'

    # The files of the stage

    def _files(self, page: Page, directive: Directive) -> Html:
        chapter = self.contents.need_chapter(page, directive)
        self.contents.no_words(page, directive)
        number = chapter.number
        files, before = self.stages.files(number), self.stages.before(number)
        changed = self.stages.changed(number)
        new = [path for path in changed if path not in before]
        counts = f"{len(new)} new, {len(changed) - len(new)} modified"
        if removed := self.stages.removed(number):
            counts += f", {len(removed)} removed ({', '.join(removed)})"
        tree: dict[str, object] = {}
        for path in files:
            at = tree
            for part in path.split("/")[:-1]:
                at = at.setdefault(f"{part}/", {})  # type: ignore[assignment]
            at[path.rpartition("/")[2]] = path
        marks = dict.fromkeys(changed, "modified") | dict.fromkeys(new, "new")
        body = self._branch(chapter, tree, marks)
        return _figure("files", f"Files so far: {len(files)} ({counts})", body)

    def _branch(self, chapter: Chapter, tree: Mapping, marks: Mapping[str, str]) -> str:
        """The folders and files in one folder; what did not change is folded."""
        rows, same = [], []
        for name, item in sorted(tree.items(), key=lambda kv: (_is_file(kv[1]), kv[0])):
            if _is_file(item):
                row = self._file_row(chapter, name, item, marks.get(item))
                (rows if item in marks else same).append(row)
                continue
            inner = self._branch(chapter, item, marks)
            paths = _paths(item)
            if any(path in marks for path in paths):
                rows.append(f"<li><code>{name}</code>{inner}</li>")
            else:
                count = f"{len(paths)} file{'s' * (len(paths) != 1)}, unchanged"
                summary = f"<code>{name}</code> ({count})"
                rows.append(f"<li>{_folded(summary, inner)}</li>")
        if not rows:
            rows, same = same, []
        if same:
            count = f"{len(same)} unchanged file{'s' * (len(same) != 1)}"
            inner = f"<ul>{''.join(same)}</ul>"
            rows.append(f"<li>{_folded(count, inner)}</li>")
        return f"<ul>{''.join(rows)}</ul>"

    def _file_row(
        self, chapter: Chapter, name: str, path: str, mark: str | None
    ) -> str:
        url = code_url(self.stages.version(chapter.number, path), path)
        text = f'<a href="{ROOT}{url}"><code>{name}</code></a>'
        if not mark:
            return f"<li>{text}</li>"
        said = f'<span class="mark-{mark}">{mark} in this chapter</span>'
        return f"<li>{text} {said}</li>"

    # Words

    def _omitted(self, page: Page, directive: Directive) -> str:
        entries = self.contents.omitted(page, directive)
        rows = [f"* `{e.path}` `{e.name}`: {e.reason}" for e in entries]
        what = f"Not shown on this page ({len(entries)})"
        return _admonition("???", "abstract", what, rows)

    def _self_test(self, page: Page, directive: Directive) -> str:
        self.contents.no_words(page, directive)
        questions, answers = self_test(page, directive)
        title = "Self-test: if you can answer these, skip the chapter"
        asked = _admonition("!!!", "question", title, questions)
        title = "Answers (try it yourself first)"
        return asked + "\n" + _admonition("???", "success", title, answers)

    def _map(self, page: Page, directive: Directive) -> Html:
        """Parts and chapters, each with what it needs and what it gives."""
        self.contents.no_words(page, directive)
        entries = _map_entries(page, directive)
        rows: dict[str, list[str]] = {}
        for chapter in self.course.chapters:
            if chapter.number not in entries:
                raise page.at(directive, f"::: map lacks chapter {chapter.number}")
            needs, gives = entries.pop(chapter.number)
            title = escape(chapter.title)
            if chapter.page:
                href = ROOT + page_url(chapter.page)
                title = f'<a href="{href}">{title}</a>'
            rows.setdefault(chapter.part, []).append(
                f"<tr><td>{chapter.number}</td><td>{title}</td>"
                f"<td>{escape(gives)}</td><td>{escape(needs)}</td></tr>"
            )
        if entries:
            raise page.at(directive, f"there is no chapter {min(entries)}")
        head = "<th>no.</th><th>chapter</th><th>you have afterwards</th><th>needs</th>"
        return Html(
            "".join(
                f"<h3>{escape(part)}</h3><table><thead>"
                f"<tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
                for part, body in rows.items()
            )
        )

    # Drawings and exercises

    def _draw(self, page: Page, directive: Directive) -> Html:
        if len(directive.words) != 1:
            raise page.at(directive, '::: draw takes one caption in quotes: "…"')
        caption = directive.words[0]
        try:
            picture = draw(parse_tree(list(directive.body)), caption)
        except DrawingError as error:
            raise page.at(directive.line + 1 + error.line, str(error)) from None
        body = f'<div class="tree-scroll">{picture}</div>'
        return Html(
            f'<figure class="drawing">{body}'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def _live(self, page: Page, directive: Directive) -> Html:
        """The operations as a list, and the drawing after them, as text.

        Its script makes it one that can be played with.
        """
        chapter = self.contents.need_chapter(page, directive)
        kind = self.contents.one_word(page, directive, "KIND")
        known = kinds(self.course.root)
        if kind not in known:
            what = f"there is no live drawing {kind}{nearest(kind, known)}"
            raise page.at(directive, f"{what} (kinds: {', '.join(known)})")
        at = [i for i, text in enumerate(directive.body) if text.strip()]
        lines = [directive.body[i].strip() for i in at]
        options = sorted(directive.options.items())
        try:
            said = played(self.course.root, chapter.number, kind, options, lines)
        except LiveError as error:
            where = directive.line
            if error.line is not None:
                where += 1 + at[error.line]
            raise page.at(where, f"::: live {kind}: {error}") from None
        except CourseError as error:
            raise page.at(directive, f"{error.message}: {error.hint}") from None
        steps = "".join(f"<li><code>{escape(line)}</code></li>" for line in lines)
        return Html(
            f'<div class="live" data-kind="{kind}" data-chapter="{chapter.number}" '
            f'data-options="{escape(json.dumps(directive.options))}">'
            f'<p class="live-title">Live drawing: {escape(said["title"])}</p>'
            f'<div class="live-static"><ol class="live-operations">{steps}</ol>'
            "<details><summary>What they do, and what is there in the end</summary>"
            f"<pre>{escape(_told(said))}</pre></details></div></div>"
        )

    def _exercise(self, page: Page, directive: Directive) -> Html:
        problem = self.problem(page, directive)
        starter = problem.starter.splitlines()
        return Html(
            f'<div class="exercise" id="exercise-{problem.slug}" '
            f'data-slug="{problem.slug}" data-chapter="{problem.chapter}">'
            f'<h3 class="exercise-title">{escape(problem.title)} '
            f'<small class="exercise-level">{_level(problem)}</small></h3>'
            f'<div class="exercise-statement">{_statement(problem)}</div>'
            f'<div class="exercise-starter">{colour(starter, "python")}</div>'
            f'<p class="exercise-local">On the command line: <code>python '
            f"practice/judge.py start {problem.slug}</code>, then <code>check "
            f"{problem.slug}</code>.</p></div>"
        )

    def problem(self, page: Page, directive: Directive) -> Problem:
        """The exercise that a directive names, of this page's chapter."""
        slug = self.contents.one_word(page, directive, "SLUG")
        root = self.course.root
        if slug not in slugs(root):
            near = nearest(slug, slugs(root))
            raise page.at(directive, f"there is no practice/problems/{slug}{near}")
        try:
            problem = load_problem(root, slug)
        except CourseError as error:
            raise page.at(directive, str(error)) from None
        chapter = self.contents.chapter_of(page.path)
        if chapter and problem.chapter != chapter.number:
            raise page.at(directive, f"{slug} belongs to chapter {problem.chapter}")
        return problem

    def _problems(self, page: Page, directive: Directive) -> Html:
        """All exercises by chapter, linked to their pages."""
        self.contents.no_words(page, directive)
        chapters = {c.number: c for c in self.course.chapters}
        rows: dict[int, list[str]] = {}
        for problem in problems(self.course.root):
            title = escape(problem.title)
            chapter = chapters.get(problem.chapter)
            if chapter and chapter.page:
                href = ROOT + page_url(chapter.page)
                title = f'<a href="{href}#exercise-{problem.slug}">{title}</a>'
            rows.setdefault(problem.chapter, []).append(
                f'<li class="exercise-link" data-slug="{problem.slug}">{title} '
                f'<small class="exercise-level">{_level(problem)}</small> '
                f"<code>{problem.slug}</code></li>"
            )
        parts = ['<div class="exercise-progress"></div>']
        for number, items in rows.items():
            name = f"Chapter {number}"
            if number in chapters:
                name += f": {chapters[number].title}"
            parts.append(f"<h2>{escape(name)}</h2><ul>{''.join(items)}</ul>")
        return Html("".join(parts))


def colour(lines: Sequence[str], lexer: str) -> str:
    """Highlighted code in `<div class="highlight"><pre><code>`.

    It is left out of the search: a page's words and the names in its captions find it,
    and every page loads the index.
    """
    # stripnl and stripall would drop blank lines at the ends and move line numbers
    chosen = get_lexer_by_name(lexer, stripnl=False, ensurenl=False)
    formatter = HtmlFormatter(cssclass="highlight", wrapcode=True)
    html = highlight("\n".join(lines), chosen, formatter)
    return html.replace("<div ", "<div data-search-exclude ", 1)


def code_url(chapter: Chapter, path: str) -> str:
    """The page of one file as of the chapter that last changed it."""
    inside = path.removeprefix(f"{PACKAGE}/")
    return f"{CODE}/{chapter.number:02d}/{inside}.html"


def page_url(page: str) -> str:
    """Where a page of docs/ is on the site: a folder of its own."""
    inside = PurePosixPath(page).relative_to(DOCS)
    if inside.name == "index.md":
        return "" if inside.parent == PurePosixPath() else f"{inside.parent}/"
    return f"{inside.with_suffix('')}/"


def _figure(kind: str, caption: str, body: str, links: str = "") -> Html:
    return Html(
        f'<figure class="listing listing-{kind}">'
        f"<figcaption><span>{caption}</span> {links}</figcaption>{body}</figure>"
    )


def _lines(listing: Listing) -> list[str]:
    """The shown lines, moved to the left edge, with a mark for every gap."""
    lines: list[str] = []
    for span in listing.spans:
        part = listing.text.between(span)
        if lines:
            indent = len(part[0]) - len(part[0].lstrip())
            lines += ["", " " * indent + "# …", ""]
        lines += part
    return textwrap.dedent("\n".join(lines)).split("\n")


def _title_of(name: str) -> str:
    """A name as a caption says it: `:head` is of the file, or of a class."""
    owner = name.removesuffix(HEAD)
    if owner == name:
        return f"<code>{escape(name)}</code>"
    return f"<code>{escape(owner)}</code>, its head" if owner else "head of the file"


def _is_diff_head(line: str) -> bool:
    heads = ("diff --git ", "--- ", "+++ ", "new file mode", "deleted file mode")
    return line.startswith(heads)


def _admonition(kind: str, style: str, title: str, lines: Sequence[str]) -> str:
    inner = "\n".join(f"    {line}".rstrip() for line in lines)
    return f'{kind} {style} "{title}"\n\n{inner}\n'


def _folded(summary: str, inner: str) -> str:
    return f"<details><summary>{summary}</summary>{inner}</details>"


def _is_file(item: object) -> bool:
    return isinstance(item, str)


def _paths(tree: Mapping) -> list[str]:
    return [
        path
        for item in tree.values()
        for path in ([item] if isinstance(item, str) else _paths(item))
    ]


def _told(said: Mapping) -> str:
    """The steps of a live drawing, and what it shows after the last."""
    steps, last = said["steps"][1:], said["steps"][-1]
    told = [f"{step['line']}: {step['says'] or step['error']}" for step in steps]
    return "\n".join([*told, "", last["text"], "", ", ".join(last["sizes"])])


def _map_entries(page: Page, directive: Directive) -> dict[int, tuple[str, str]]:
    """`3 | needs | gives` lines: number -> (needs, gives)."""
    entries = {}
    for line, text in enumerate(directive.body, directive.line + 1):
        if not text.strip():
            continue
        parts = [part.strip() for part in text.split("|")]
        if len(parts) != 3 or not parts[0].isdigit():
            raise page.at(line, f"{text!r} is not `NUMBER | what it needs | what for`")
        entries[int(parts[0])] = parts[1], parts[2]
    return entries


def _statement(problem: Problem) -> str:
    extensions = ["pymdownx.superfences", "pymdownx.highlight", "tables", "sane_lists"]
    return Markdown(extensions=extensions).convert(problem.statement)


def _level(problem: Problem) -> str:
    return _LEVELS.get(problem.difficulty, str(problem.difficulty))


def _titled(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""
