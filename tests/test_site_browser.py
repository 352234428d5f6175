"""The finished site in a browser: pages load and can be read, exercises work."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.browser import REPO, Server, urls_asked
from support.built_site import BuiltSite, build_site, built_site

from practice.problems import Problem, load_all

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

__all__ = ["built_site"]  # the fixture
pytest_plugins = ["support.browser_fixtures"]
pytestmark = pytest.mark.browser

PAGES = ["", *sorted(p.stem for p in (REPO / "docs").glob("*.md") if p.stem != "index")]
PROBLEMS = {problem.slug: problem for problem in load_all(REPO)}
CHAPTERS = {page: int(page[:2]) for page in PAGES if page[:2].isdigit()}
AXE = REPO / "practice" / "web" / "node_modules" / "axe-core" / "axe.min.js"
MAX_BYTES = 300_000  # of a page, gzipped, before an editor has the focus
BAD = ("error", "warning")  # of the console; a file that is not there is an error
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[Server]:
    """The finished site, with the browser's files, on a server of its own."""
    server = Server(build_site().root)
    yield server
    server.close()


@pytest.fixture
def page(chromium: Browser, site: Server) -> Iterator[Page]:
    """A new reader's page. In the end nothing failed, and only the site was asked."""
    context = chromium.new_context()
    asked = urls_asked(context)
    errors: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: m.type in BAD and errors.append(m.text))
    yield page
    context.close()
    elsewhere = [url for url in asked if not url.startswith((site.url, "blob:"))]
    assert (errors, elsewhere) == ([], [])


def go(page: Page, site: Server, name: str) -> None:
    page.goto(f"{site.url}/{name}/" if name else f"{site.url}/")
    page.wait_for_load_state("networkidle")


# --- every page -----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES, ids=lambda name: name or "index")
def test_a_page_can_be_read_by_everybody(
    page: Page, site: Server, name: str, scheme: str
):
    """On a phone, in light and dark, with a keyboard or a screen reader."""
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme=scheme)
    go(page, site, name)
    shown = page.locator("body").get_attribute("data-md-color-scheme")
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert violations(page) == []


def violations(page: Page) -> list[str]:
    """What axe-core finds to be in the way of readers, with the places."""
    page.add_script_tag(content=AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:5]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_is_light_until_an_editor_has_the_focus(
    page: Page, site: Server, built_site: BuiltSite, name: str
):
    site.asked.clear()
    go(page, site, name)
    page.get_by_role("button", name="Run", exact=True).first.wait_for()
    paths = {f"{path}index.html" if path.endswith("/") else path for path in site.asked}
    assert not [path for path in paths if "runtime" in path or "editor" in path]
    files = [built_site.root / path[1:] for path in paths]
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in files}
    assert sum(sizes.values()) < MAX_BYTES, sizes


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_reads_sensibly_without_javascript(
    chromium: Browser, site: Server, name: str
):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    go(page, site, name)
    for problem in problems_of(page):
        starter = exercise(page, problem).locator(".exercise-starter")
        assert starter.is_visible()
        assert starter.inner_text().strip() == problem.starter.strip()
        assert page.locator(
            f"#exercise-{problem.slug} .exercise-statement"
        ).is_visible()
    for drawing in page.locator(".live").all():
        assert drawing.locator(".live-operations").is_visible()
        drawing.locator("summary").click()
        assert drawing.locator("pre").is_visible()
    context.close()


# --- exercises ------------------------------------------------------------------------


def problems_of(page: Page) -> list[Problem]:
    """The problems that a page has, in its order; there is one at least."""
    slugs = page.locator(".exercise").evaluate_all(
        "all => all.map(e => e.dataset.slug)"
    )
    assert slugs
    return [PROBLEMS[slug] for slug in slugs]


def exercise(page: Page, problem: Problem) -> Locator:
    return page.locator(f"#exercise-{problem.slug}")


def write(page: Page, problem: Problem, answer: str) -> None:
    """Go into the editor and replace what is in it, as by pasting."""
    place = exercise(page, problem)
    if place.locator(".exercise-starter pre").is_visible():
        place.locator(".exercise-starter pre").focus()
    place.locator(".exercise-editor .cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(answer)


def run(page: Page, problem: Problem, answer: str) -> str:
    """The verdict on an answer: accepted, rejected, or no result."""
    write(page, problem, answer)
    page.keyboard.press("ControlOrMeta+Enter")
    return verdict(exercise(page, problem))


def verdict(place: Locator) -> str:
    place.and_(place.page.locator("[aria-busy=false]")).wait_for()
    status = place.locator(".exercise-status")
    return status.get_attribute("data-status") or status.inner_text()


@pytest.mark.parametrize("name", CHAPTERS)
def test_starters_fail_and_solutions_pass_in_the_page(
    page: Page, site: Server, name: str
):
    go(page, site, name)
    for problem in problems_of(page):
        assert problem.chapter == CHAPTERS[name]
        assert run(page, problem, problem.starter) == "rejected", problem.slug
        assert run(page, problem, problem.solution) == "accepted", problem.slug
        assert exercise(page, problem).get_attribute("data-accepted") == "true"
    accepted = len(problems_of(page))
    go(page, site, "practice")
    assert page.locator(".exercise-badge").count() == accepted


def test_every_problem_is_on_a_page(built_site: BuiltSite):
    html = "".join(built_site.pages[f"{name}/index.html"] for name in CHAPTERS)
    assert [slug for slug in PROBLEMS if html.count(f'data-slug="{slug}"') != 1] == []


def test_a_loop_is_stopped_and_the_answer_is_there_after_a_reload(
    page: Page, site: Server
):
    problem = PROBLEMS["page-allocator"]
    loop = f"{problem.solution}\nwhile True:\n    pass\n"
    go(page, site, "03_pool")
    assert run(page, problem, loop) == "rejected"
    said = exercise(page, problem).locator(".exercise-status").inner_text()
    assert "loading your answer: did not end within" in said
    assert run(page, problem, problem.solution) == "accepted"
    write(page, problem, f"{problem.solution}# more\n")
    page.reload()
    kept = exercise(page, problem).locator(".exercise-starter pre").inner_text()
    assert kept.rstrip().endswith("# more")


def test_the_keyboard_leads_into_an_exercise_and_out_of_it(page: Page, site: Server):
    problem = PROBLEMS["page-allocator"]
    go(page, site, "03_pool")
    place = exercise(page, problem)
    place.locator(".exercise-title").evaluate("e => { e.tabIndex = -1; e.focus() }")
    for _ in range(10):  # past what scrolls in the statement, to the starter
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.exercise-starter')"):
            break
    place.locator(".cm-content").wait_for()
    page.wait_for_function("document.activeElement.matches('.cm-content')")
    page.keyboard.press("ControlOrMeta+Enter")
    assert verdict(place) == "rejected"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Run"


def test_going_on_leaves_one_pair_of_workers(page: Page, site: Server):
    go(page, site, "03_pool")
    for _ in range(2):
        assert pythons(page) == 0
        problem = problems_of(page)[0]
        assert run(page, problem, problem.starter) == "rejected"
        if pythons(page) < 2:
            page.wait_for_event("worker")
        assert pythons(page) == 2  # one that answers, one that waits
        page.locator(".md-footer__link--next").click()
        page.wait_for_load_state("networkidle")


def pythons(page: Page) -> int:
    """Workers of a page, less the one that searches the site."""
    return len([w for w in page.workers if "practice" in w.url])


def test_where_python_cannot_be_had_the_local_judge_is_named(
    chromium: Browser, site: Server
):
    context = chromium.new_context()
    context.route("**/*.wasm", lambda route: route.abort())
    page = context.new_page()
    go(page, site, "03_pool")
    said = run(page, PROBLEMS["page-allocator"], "pass")
    assert ".venv/bin/python practice/judge.py check page-allocator" in said
    context.close()
