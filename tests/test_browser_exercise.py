"""The exercise component: what a reader does in a page, with keyboard and phone too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import FREE_LIST, REPO, Server, problem_json, watched_page

from practice import sandbox
from practice.progress import read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest_plugins = ["support.browser_fixtures"]
pytestmark = pytest.mark.browser

COMMAND = ".venv/bin/python practice/judge.py check free-list"
KEY = "minisgl.practice.1.free-list"


def exercise(slug: str = "free-list") -> str:
    return f"""<div class="exercise" data-slug="{slug}" data-chapter="3">
      <h3>A free list of pages</h3>
      <div class="exercise-statement"><p>A pool hands out pages.</p></div>
      <div class="exercise-starter"><pre><code>{FREE_LIST.starter}</code></pre></div>
    </div>"""


def document(body: str, head: str = "") -> str:
    return f"""<!doctype html><html lang="en"><head><title>A page</title>
      <meta name="viewport" content="width=device-width">
      <link rel="stylesheet" href="/exercise.css">{head}
      <script type="module" src="/exercise.js"></script></head>
      <body data-md-color-scheme="default">{body}</body></html>"""


@pytest.fixture(autouse=True)
def pages(server: Server) -> Iterator[None]:
    """A page with an exercise and progress, and one to go on to."""
    before = dict(server.overlay)
    problems = [problem_json(FREE_LIST), problem_json(FREE_LIST) | {"slug": "other"}]
    server.overlay["/chapters/03/problems.json"] = json.dumps(problems)
    body = exercise() + '<div class="exercise-progress"></div><a href="/b.html">on</a>'
    server.overlay["/a.html"] = document(body)
    server.overlay["/b.html"] = document(exercise("other"))
    yield
    server.overlay.clear()
    server.overlay.update(before)


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    """What the judge says of some answers."""
    answers = [FREE_LIST.solution, FREE_LIST.starter, FREE_LIST.wrong_answers["lifo"]]
    return {answer: sandbox.grade(REPO, FREE_LIST, answer) for answer in answers}


@pytest.fixture
def canned(server: Server, results: dict[str, dict]) -> None:
    """A runtime that knows these results, for what is not about Python."""
    server.overlay["/runtime.js"] = f"""
      const results = {json.dumps(results)};
      const runtime = {{
        warm: async () => {{}},
        run: async (problem, answer, {{ onPlan, onTest }}) => {{
          const result = results[answer] ?? results[problem.starter];
          onPlan(result.tests.map(({{ name }}) => ({{ name, example: false }})));
          result.tests.forEach(onTest);
          return result;
        }},
      }};
      export const pageRuntime = () => runtime;
      export const leavePage = () => {{}};
    """


def go(page: Page, server: Server, name: str = "a.html") -> None:
    page.goto(f"{server.url}/{name}")


def write(page: Page, answer: str) -> None:
    """Open the editor if needed and replace what is in it, as by pasting."""
    if page.locator(".exercise-starter pre:visible").count():
        page.locator(".exercise-starter pre").focus()
    page.locator(".cm-content").first.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(answer)


def run(page: Page, answer: str | None = None) -> str:
    """Press Run, wait for the verdict: the status line."""
    if answer is not None:
        write(page, answer)
    page.locator(".exercise-status").evaluate("(e) => e.removeAttribute('data-status')")
    page.get_by_role("button", name="Run").click()
    page.locator(".exercise-status[data-status]").wait_for()
    return status(page)


def status(page: Page) -> str:
    return page.locator(".exercise-status").inner_text()


def stored(page: Page) -> dict:
    return json.loads(page.evaluate("(key) => localStorage.getItem(key)", KEY) or "{}")


def text(page: Page) -> str:
    """What the editor holds."""
    return page.locator(".exercise-editor .cm-content").evaluate(
        "(node) => node.cmTile.view.state.doc.toString()"
    )


def test_without_javascript_the_exercise_can_be_read(chromium: Browser, server: Server):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    go(page, server)
    assert page.get_by_text("A pool hands out pages.").is_visible()
    assert page.locator(".exercise pre").inner_text().strip() == (
        FREE_LIST.starter.strip()
    )
    context.close()


def test_nothing_big_is_fetched_before_an_editor_has_the_focus(
    page: Page, server: Server, built: Path
):
    server.asked.clear()
    go(page, server)
    page.get_by_role("button", name="Run").wait_for()
    page.wait_for_load_state("networkidle")
    early = [path for path in server.asked if path != "/favicon.ico"]
    assert {"/a.html", "/exercise.css", "/exercise.js"} <= set(early)
    assert sum((built / path[1:]).stat().st_size for path in early[1:]) < 20_000

    page.locator(".exercise pre").focus()
    page.wait_for_function("document.querySelector('.cm-content')")
    assert page.evaluate("document.activeElement.className").startswith("cm-content")
    assert text(page) == FREE_LIST.starter
    page.wait_for_load_state("networkidle")
    assert "/runtime/pyodide.asm.wasm" in server.asked


def test_a_failure_shows_expected_actual_operations_and_drawings(
    page: Page, server: Server, canned: None
):
    go(page, server)
    said = run(page, FREE_LIST.wrong_answers["lifo"])
    assert said.startswith("✗ rejected:")
    failed = page.locator(".exercise-tests li[data-status=failed]")
    assert failed.locator("p").first.inner_text().startswith("✗ failed: ")
    words = failed.inner_text()
    assert "oldest free page first" in words
    pictures = failed.locator("pre").all_inner_texts()
    assert "take()" in pictures[0]  # the operations
    assert "page" in pictures[1]  # drawn: expected
    assert page.locator(".exercise-tests li[data-status=passed]").count() == 2
    assert stored(page)["tries"] == 1


def test_a_pass_is_kept_with_its_answer(page: Page, server: Server):
    go(page, server)
    assert run(page, FREE_LIST.solution).startswith("✓ accepted: all 3 tests pass")
    entry = stored(page)
    assert (entry["accepted"], entry["answer"]) == (True, FREE_LIST.solution)
    page.reload()
    assert page.locator(".exercise h3").inner_text().endswith("✓ accepted")
    assert page.locator(".exercise pre").inner_text().strip() == (
        FREE_LIST.solution.strip()
    )
    page.locator(".exercise pre").focus()
    page.locator(".cm-content").wait_for()
    assert text(page) == FREE_LIST.solution


def test_what_is_typed_is_there_after_a_reload(
    page: Page, server: Server, canned: None
):
    go(page, server)
    write(page, "draft = 1\n")
    page.reload()
    assert page.locator(".exercise pre").inner_text() == "draft = 1\n"


def test_the_keyboard_is_enough(page: Page, server: Server, canned: None):
    go(page, server)
    page.keyboard.press("Tab")
    page.locator(".cm-content").wait_for()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text("def f():")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert text(page) == "def f():\n        "  # one by the colon, one by Tab
    page.keyboard.press("ControlOrMeta+Enter")
    page.locator(".exercise-status[data-status=rejected]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Run"
    page.locator(".cm-content").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Tab")
    assert not page.evaluate("document.activeElement.closest('.cm-editor')")


def test_reset_asks_first(page: Page, server: Server, canned: None):
    go(page, server)
    write(page, "draft = 1\n")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Reset").click()
    assert text(page) == "draft = 1\n"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Reset").click()
    page.wait_for_function(
        "document.querySelector('.cm-content').textContent.includes('FreeList')"
    )
    assert text(page) == FREE_LIST.starter
    assert stored(page)["draft"] == FREE_LIST.starter


def test_hints_come_one_at_a_time(page: Page, server: Server):
    go(page, server)
    hints = page.locator(".exercise-hints li")
    assert hints.count() == 0
    for number, hint in enumerate(FREE_LIST.hints, 1):
        page.locator(".exercise-buttons button", has_text="hint").or_(
            page.get_by_role("button", name="Hint", exact=True)
        ).first.click()
        page.wait_for_function(
            "(n) => document.querySelectorAll('.exercise-hints li').length === n",
            arg=number,
        )
        assert hints.nth(number - 1).inner_text() == hint
    assert page.get_by_role("button", name="No more hints").is_disabled()
    assert page.locator(".cm-content").count() == 0  # a hint needs no editor


def test_the_solution_comes_after_three_tries_as_a_difference(
    page: Page, server: Server, canned: None
):
    go(page, server)
    solution = page.locator(".exercise-buttons button", has_text="Solution")
    for _ in range(3):
        assert solution.is_disabled()
        run(page, FREE_LIST.starter)
    solution.click()
    shown = page.locator(".exercise-solution")
    mine = shown.locator(".cm-deletedLine").first
    mine.wait_for()
    assert "raise NotImplementedError" in mine.inner_text()
    assert "deque" in shown.locator(".cm-changedLine").first.inner_text()
    sign = "(e) => getComputedStyle(e, '::before').content"
    assert shown.locator(".cm-changedLine").first.evaluate(sign) == '"+"'
    assert mine.evaluate(sign) == '"−"'


def test_a_run_can_be_stopped(page: Page, server: Server):
    go(page, server)
    write(page, f"{FREE_LIST.solution}\nwhile True: pass\n")
    page.get_by_role("button", name="Run").click()
    page.locator(".exercise-tests li").first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_function(
        "document.querySelector('.exercise-status').textContent === 'stopped'"
    )
    assert run(page, FREE_LIST.solution).startswith("✓ accepted")


def test_progress_goes_out_in_the_judges_form_and_comes_back(
    page: Page, server: Server, canned: None, tmp_path: Path
):
    go(page, server)
    run(page, FREE_LIST.solution)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export progress").click()
    file = tmp_path / "progress.json"
    download.value.save_as(file)
    attempt = read(file)["free-list"]
    assert (attempt.accepted, attempt.answer) == (True, FREE_LIST.solution)
    assert attempt.tries == 1

    page.evaluate("localStorage.clear()")
    page.reload()
    assert "accepted" not in page.locator(".exercise h3").inner_text()
    page.locator("input[type=file]").set_input_files(file)
    page.locator(".exercise-badge").wait_for()
    assert stored(page)["answer"] == FREE_LIST.solution


def test_an_import_asks_before_it_replaces_a_draft(
    page: Page, server: Server, canned: None, tmp_path: Path
):
    file = tmp_path / "progress.json"
    entry = {"accepted": True, "answer": FREE_LIST.solution, "tries": 2}
    file.write_text(json.dumps({"version": 1, "problems": {"free-list": entry}}))
    go(page, server)
    write(page, "draft = 1\n")
    page.wait_for_function("(key) => localStorage.getItem(key)", arg=KEY)
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("nothing imported").wait_for()
    assert "free-list" in asked[0]
    assert stored(page)["draft"] == "draft = 1\n"
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("1 exercises imported").wait_for()
    page.wait_for_function(
        "document.querySelector('.cm-content').textContent.includes('deque')"
    )
    assert text(page) == FREE_LIST.solution


def test_an_import_leaves_an_accepted_answer_alone(
    page: Page, server: Server, tmp_path: Path
):
    file = tmp_path / "progress.json"
    entry = {"accepted": True, "answer": "theirs = 1\n", "tries": 5}
    file.write_text(json.dumps({"version": 1, "problems": {"free-list": entry}}))
    go(page, server)
    mine = {"accepted": True, "answer": "mine = 1\n", "tries": 2, "draft": None}
    page.evaluate("([key, e]) => { localStorage[key] = e; }", [KEY, json.dumps(mine)])
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("1 exercises imported").wait_for()
    assert stored(page) == mine | {"tries": 5}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "this file is not JSON"),
        ('{"version": 2, "problems": {}}', "not progress of version 1"),
        ('{"version": 1, "problems": {"free-list": {}}}', "damaged at free-list"),
        ("[]", "not progress of version 1"),
    ],
)
def test_a_file_that_is_no_progress_is_refused(
    page: Page, server: Server, content: str, why: str
):
    go(page, server)
    files = [{"name": "p.json", "mimeType": "application/json"}]
    files[0]["buffer"] = content.encode()
    page.locator("input[type=file]").set_input_files(files)
    page.get_by_text("not imported: ").wait_for()
    assert why in page.locator(".exercise-progress [role=status]").inner_text()
    assert page.evaluate("localStorage.length") == 0


@pytest.mark.parametrize(
    "path",
    [
        "/runtime/pyodide.mjs",
        "/runtime/pyodide.asm.wasm",
        "/python/grading.py",
        "/worker.js",
        "/chapters/03/problems.json",
    ],
)
def test_what_cannot_be_loaded_names_the_local_judge(
    chromium: Browser, server: Server, path: str
):
    context = chromium.new_context()  # not watched: the scripts log what is missing
    page = context.new_page()
    go(page, server)
    server.overlay[path] = None
    page.get_by_role("button", name="Run").click()
    page.get_by_text(COMMAND).wait_for()
    assert page.locator(".exercise").get_attribute("aria-busy") == "false"
    context.close()


def test_after_a_failed_load_the_next_try_is_a_new_one(
    chromium: Browser, server: Server
):
    context = chromium.new_context()
    page = context.new_page()
    go(page, server)
    server.overlay["/worker.js"] = None
    page.get_by_role("button", name="Run").click()
    page.get_by_text(COMMAND).wait_for()
    del server.overlay["/worker.js"]
    assert run(page).startswith("✗ rejected")
    context.close()


def test_a_wheel_of_another_python_is_replaced_by_the_plain_one(
    page: Page, server: Server, built: Path
):
    lock = json.loads((built / "runtime" / "pyodide-lock.json").read_text())
    name = lock["packages"]["minisgl-stage03"]["file_name"]
    wheel = bytearray((built / "runtime" / name).read_bytes())
    wheel[len(wheel) // 2] ^= 1
    server.overlay[f"/runtime/{name}"] = bytes(wheel)
    server.asked.clear()
    go(page, server)
    assert run(page, FREE_LIST.solution).startswith("✓ accepted")
    assert f"/runtime/{name.replace('cp313', 'py3')}" in server.asked


def test_on_a_phone_it_can_be_touched_and_read(
    chromium: Browser, server: Server, canned: None
):
    phone = {"width": 360, "height": 640}
    context = chromium.new_context(viewport=phone, has_touch=True)
    with watched_page(context, server) as page:
        go(page, server)
        page.locator(".exercise pre").tap()
        page.locator(".cm-content").wait_for()
        size = "(e) => getComputedStyle(e).fontSize"
        assert page.locator(".cm-content").evaluate(size) == "16px"
        for button in page.locator(".exercise-buttons button:visible").all():
            assert button.bounding_box()["height"] >= 44
            assert button.bounding_box()["width"] >= 44
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_editor_follows_the_pages_colours(page: Page, server: Server, canned: None):
    go(page, server)
    page.locator(".exercise pre").focus()
    editor = page.locator(".exercise-editor .cm-editor")
    editor.wait_for()
    colour = "(e) => getComputedStyle(e).backgroundColor"
    light = editor.evaluate(colour)
    page.evaluate("document.body.dataset.mdColorScheme = 'slate'")
    page.wait_for_function(
        "(c) => getComputedStyle(document.querySelector('.cm-editor'))"
        ".backgroundColor !== c",
        arg=light,
    )
    assert editor.evaluate(colour) == "rgb(40, 44, 52)"


def test_nothing_moves_for_a_reader_who_wants_that(
    chromium: Browser, server: Server, canned: None
):
    context = chromium.new_context(reduced_motion="reduce")
    with watched_page(context, server) as page:
        go(page, server)
        page.locator(".exercise pre").focus()
        page.locator(".cm-cursorLayer").wait_for(state="attached")
        page.wait_for_timeout(100)
        moving = page.evaluate(
            "document.getAnimations().filter((a) => a.playState === 'running').length"
        )
        assert moving == 0


def test_going_on_and_back_leaves_one_pair_of_workers(page: Page, server: Server):
    go(page, server)
    run(page, FREE_LIST.solution)
    page.get_by_role("link", name="on").click()
    page.wait_for_url("**/b.html")
    assert run(page, FREE_LIST.starter).startswith("✗ rejected")
    page.go_back()
    page.wait_for_url("**/a.html")
    assert run(page, FREE_LIST.solution).startswith("✓ accepted")
    page.wait_for_timeout(2_000)
    assert len(page.workers) == 2


def test_navigation_that_keeps_scripts_starts_again(page: Page, server: Server):
    """Material's instant loading: the body is new, `document$` says so."""
    observable = """<script>window.document$ = {
      all: [], subscribe(f) { this.all.push(f); f(); },
      next() { for (const f of this.all) f(); },
    };</script>"""
    server.overlay["/instant.html"] = document(exercise(), observable)
    go(page, server, "instant.html")
    run(page, FREE_LIST.solution)
    old = len(page.workers)
    assert old >= 1
    page.evaluate(
        "(html) => { document.body.innerHTML = html; document$.next(); }",
        exercise("other"),
    )
    page.get_by_role("button", name="Run").wait_for()
    assert run(page, FREE_LIST.solution).startswith("✓ accepted")
    page.wait_for_timeout(2_000)
    assert len(page.workers) == 2
    page.evaluate("document.body.innerHTML = '<p>no exercise</p>'; document$.next()")
    page.wait_for_timeout(500)
    assert page.workers == []
