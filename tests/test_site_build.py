"""The site as a whole: strict, with links that hold, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from course.manifest import Course
from course.pages.content import Contents
from course.pages.site_files import site_files
from support.built_site import (
    BuiltSite,
    Seen,
    broken_links,
    build_with_zensical,
    built_site,
)
from support.page_course import REPO, PageCourse, run_builder

__all__ = ["built_site"]  # the fixture


# --- a build that must fail -----------------------------------------------------------


@pytest.mark.parametrize(
    ("directive", "what"),
    [
        ("::: code missing.py", "stage 2 has no missing.py"),
        ("::: code store.py Store.fetch", "has no Store.fetch here"),
        ('::: code store.py "Store.get', "a quote is not closed"),
        ("::: output", "there is nothing in it to show"),
    ],
)
def test_a_listing_that_is_not_there_fails_the_build_with_page_and_line(
    tmp_path: Path, directive: str, what: str
):
    course = PageCourse(tmp_path)
    course.examples[1] = ("x = 1\n", "\n")
    course.pages[1] += f"\n{directive}\n"
    done = course.write().build()
    assert done.returncode != 0
    assert "docs/02_store.md:7: " in done.stderr and what in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "site" / "02_store" / "index.html").exists()


def test_without_the_hook_the_build_fails_at_the_page(tmp_path: Path):
    """The extension alone must stop a builder that has no hooks."""
    course = PageCourse(tmp_path)
    course.pages[1] += "\n::: code store.py Store.fetch\n"
    course.write()
    assert course.build().returncode != 0
    config = tmp_path / "mkdocs.yml"
    config.write_text(re.sub("hooks: .*\n", "", config.read_text()))
    done = run_builder("mkdocs", tmp_path)
    assert done.returncode != 0
    assert "docs/02_store.md:7: " in done.stderr and "Store.fetch" in done.stderr


def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path):
    course = PageCourse(tmp_path)
    course.extra["docs/index.md"] = "[to](01_counter.md)\n"
    done = course.write().build()
    assert done.returncode == 0, done.stderr
    course.extra["docs/index.md"] = "[to](09_nothing.md)\n"
    assert course.write().build().returncode != 0


def test_pages_load_the_browsers_files_once_they_are_built(tmp_path: Path):
    course = PageCourse(tmp_path).write()
    assert course.build().returncode == 0
    page = tmp_path / "site/01_counter/index.html"
    assert "assets/practice" not in page.read_text()
    names = ["exercise.css", "exercise.js", "live.css", "live.js"]
    for name in ("manifest.json", *names, "chunks/a.js"):
        course.put(f"build/web/{name}", "{}")
    assert course.build().returncode == 0
    loaded = [url for url in Seen(page.read_text()).loaded if "practice" in url]
    assert sorted(loaded) == [f"../assets/practice/{name}" for name in names]
    for script in ("exercise", "live"):
        assert re.search(rf'<script[^>]*{script}\.js" type="module"', page.read_text())
    assert (tmp_path / "site/assets/practice/chunks/a.js").is_file()


# --- the real site --------------------------------------------------------------------


def test_the_site_builds_strictly_and_quickly(built_site: BuiltSite):
    assert "WARNING" not in built_site.printed
    assert built_site.cpu_seconds < 20


def test_every_page_of_the_course_is_in_the_site(built_site: BuiltSite):
    chapters = [c.page for c in Course.load(REPO).chapters if c.page]
    for page in [*chapters, "docs/practice.md", "docs/glossary.md", "docs/gpu.md"]:
        assert f"{Path(page).stem}/index.html" in built_site.pages


def test_no_marker_of_a_directive_is_left(built_site: BuiltSite):
    for path, html in built_site.pages.items():
        text = " ".join(Seen(html).text)
        for marker in (":::", "{{", "}}", "wzxhzdk"):
            assert marker not in text, path


def test_an_example_of_a_directive_is_shown_as_it_is(built_site: BuiltSite):
    assert "::: code kvcache/page_allocator.py" in built_site.pages[
        "authoring/index.html"
    ].replace("</span>", "").replace("<span>", "")


def test_every_link_inside_the_site_holds(built_site: BuiltSite):
    assert len(built_site.pages) > 100
    assert broken_links(built_site) == []


def test_no_page_loads_anything_from_elsewhere(built_site: BuiltSite):
    for path, html in built_site.pages.items():
        assert [url for url in Seen(html).loaded if "//" in url] == [], path
        # the theme fetches mermaid from elsewhere as soon as a page has one
        assert 'class="mermaid"' not in html
    for file in built_site.root.rglob("*.css"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", text), file


def test_pages_are_not_swapped_without_their_scripts():
    """With instant navigation, the scripts of the second page would not run."""
    assert "navigation.instant" not in (REPO / "mkdocs.yml").read_text()


def test_a_file_has_a_page_for_each_chapter_that_changes_it(built_site: BuiltSite):
    pages = built_site.pages
    assert "code/01/core.py.html" in pages
    first = pages["code/03/kvcache/page_allocator.py.html"]
    assert "The whole file is new." in first and "What chapter 3" not in first
    errors = pages["code/03/errors.py.html"]
    assert "What chapter 3 changes in it" in errors
    assert 'href="../../code/01/errors.py.html"' in errors
    assert 'id="L-1"' in errors


def test_the_pages_of_files_are_those_of_their_stage(tmp_path: Path):
    course = PageCourse(tmp_path).write()
    files = dict(site_files(course.contents))
    assert "negative count" not in files["code/01/counter.py.html"]
    assert "negative count" in files["code/02/counter.py.html"]
    assert "code/03/counter.py.html" not in files  # chapter 3 does not change it
    assert 'href="../../01_counter/"' in files["code/01/counter.py.html"]


# --- another builder ------------------------------------------------------------------


def test_zensical_puts_the_same_directives_in():
    site = build_with_zensical()
    html = site.pages["03_pool/index.html"]
    assert html.count('<figure class="listing') > 10
    assert "new in this chapter" in html
    for path, page in site.pages.items():
        assert ":::" not in " ".join(Seen(page).text), path


def test_links_hold_in_zensicals_site_too():
    site = build_with_zensical()
    for path, text in site_files(Contents(Course.load(REPO))):
        target = site.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    broken = [link for link in broken_links(site) if "/code/" in link.split(" -> ")[1]]
    assert broken == []
