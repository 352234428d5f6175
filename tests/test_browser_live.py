"""Live drawings: what a reader does with one, with keyboard and phone too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.browser import Server, watched_page
from support.live_pages import RADIX, live

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytest_plugins = ["support.browser_fixtures"]
pytestmark = pytest.mark.browser


def document(body: str, head: str = "") -> str:
    return f"""<!doctype html><html lang="en"><head><title>A page</title>
      <meta name="viewport" content="width=device-width">
      <link rel="stylesheet" href="/live.css">{head}
      <script type="module" src="/live.js"></script></head>
      <body data-md-color-scheme="default">{body}</body></html>"""


@pytest.fixture(autouse=True)
def pages(server: Server) -> Iterator[None]:
    before = dict(server.overlay)
    server.overlay["/a.html"] = document(live("radix", *RADIX))
    yield
    server.overlay.clear()
    server.overlay.update(before)


@pytest.fixture(scope="module")
def shared(profile: BrowserContext, server: Server) -> Iterator[Page]:
    """One page with a drawing, for all tests that leave its Python usable."""
    server.overlay["/shared.html"] = document(live("radix", *RADIX))
    with watched_page(profile, server) as page:
        go(page, server, "shared.html")
        page.evaluate("window.confirm = () => true")
        yield page


@pytest.fixture
def drawing(shared: Page) -> Page:
    """The shared page as it was in the beginning."""
    press(shared, "Reset")
    shared.get_by_label("Predict, then reveal").uncheck()
    said(shared, "Step 0 of 6")
    return shared


def go(page: Page, server: Server, name: str = "a.html") -> None:
    page.goto(f"{server.url}/{name}")
    page.get_by_role("button", name="One step forward").wait_for()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def said(page: Page, part: str) -> str:
    """The status line, once it has this part."""
    page.locator(".live-status", has_text=part).wait_for()
    return page.locator(".live-status").inner_text()


def nodes(page: Page) -> list[str]:
    """Every node as it is drawn: its lines, joined."""
    drawn = page.locator(".live-node")
    return [" ".join(node.locator("text").all_text_contents()) for node in drawn.all()]


def lines(page: Page) -> list[str]:
    return page.locator(".live-jump").all_inner_texts()


def add(page: Page, line: str) -> None:
    page.get_by_label("Type an operation").fill(line)
    page.keyboard.press("Enter")


def test_without_javascript_operations_and_result_can_be_read(
    chromium: Browser, server: Server
):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{server.url}/a.html")
    assert page.locator(".live-operations li").all_inner_texts() == list(RADIX)
    page.locator("summary").click()
    told = page.locator(".live pre").inner_text()
    assert "insert 1 2 9: 2 of 3 tokens were there already." in told
    assert "evict 9: EvictionError: cannot evict 9 tokens" in told
    assert told.endswith("evictable 0, protected 3")
    context.close()


def test_nothing_big_is_fetched_before_the_first_step(
    page: Page, server: Server, built: Path
):
    server.asked.clear()
    go(page, server)
    page.wait_for_load_state("networkidle")
    early = [path for path in server.asked if path not in ("/favicon.ico", "/a.html")]
    assert {"/live.css", "/live.js"} <= set(early)
    assert sum((built / path[1:]).stat().st_size for path in early) < 20_000
    press(page, "One step forward")
    said(page, "Step 1 of 6")
    assert "/runtime/pyodide.asm.wasm" in server.asked


def test_steps_forward_and_back_show_each_change_in_words(drawing: Page):
    page = drawing
    press(page, "One step forward")
    assert said(page, "Step 1") == (
        "Step 1 of 6: insert 1 2 3. 0 of 3 tokens were there already."
    )
    assert nodes(page) == ["root", "[1, 2, 3] slots 0, 1, 2 used at 1 + new"]
    press(page, "One step forward")
    assert said(page, "Step 2").endswith("2 of 3 tokens were there already.")
    assert nodes(page) == [
        "root",
        "[1, 2] slots 0, 1 used at 2 + new",
        "[3] slots 2 used at 1 ~ changed",
        "[9] slots 5 used at 2 + new",
    ]
    press(page, "One step back")
    said(page, "Step 1")
    assert nodes(page) == ["root", "[1, 2, 3] slots 0, 1, 2 used at 1 + new"]
    press(page, "To the end")
    said(page, "Step 6 of 6")
    assert page.locator(".live-sizes").inner_text() == "evictable 0, protected 3"
    assert page.get_by_role("button", name="One step forward").is_disabled()
    press(page, "To the start")
    said(page, "Step 0 of 6")
    assert nodes(page) == ["root"]
    assert page.get_by_role("button", name="One step back").is_disabled()


def test_a_refusal_is_said_and_what_is_gone_is_drawn_once_more(drawing: Page):
    page = drawing
    press(page, "evict 9")
    assert "✗ refused: EvictionError: cannot evict 9 tokens" in said(page, "Step 4")
    press(page, "evict 1")
    said(page, "Step 5")
    assert nodes(page)[-1] == "[9] slots 5 used at 2 − gone"
    gone = page.locator(".live-node.gone rect")
    assert gone.evaluate("(e) => getComputedStyle(e).strokeDasharray") == "5px, 4px"
    press(page, "match 1 2 3 4")
    said(page, "Step 6")
    assert not [node for node in nodes(page) if "gone" in node]


def test_a_typed_operation_goes_behind_the_step_shown(drawing: Page):
    page = drawing
    press(page, "insert 1 2 3")
    said(page, "Step 1 of 6")
    add(page, "insert 5..7 @bob")
    assert said(page, "Step 2 of 7: insert 5..7 @bob.")
    assert lines(page)[:3] == ["insert 1 2 3", "insert 5..7 @bob", "insert 1 2 9"]
    assert "@bob [5, 6, 7] slots 3, 4, 5 used at 2 + new" in nodes(page)
    assert page.get_by_label("Type an operation").input_value() == ""
    page.get_by_role("button", name="Remove insert 5..7 @bob").click()
    said(page, "Step 1 of 6")
    assert lines(page) == list(RADIX)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("insrt 1 2", "there is no operation 'insrt'; did you mean insert?"),
        ("insert one", "'one' is no token: give numbers, as in 1 2 3 or 1..8"),
        ("evict", "COUNT is missing: write evict COUNT"),
        ("unlock 7", "there is no receipt 7"),
    ],
)
def test_a_line_that_cannot_be_read_changes_nothing(drawing: Page, line: str, why: str):
    page = drawing
    add(page, line)
    assert why in said(page, "✗ not added")
    assert lines(page) == list(RADIX)
    assert page.get_by_label("Type an operation").input_value() == line


def test_buttons_and_nodes_write_the_operation(drawing: Page):
    page = drawing
    press(page, "insert 1 2 9")
    said(page, "Step 2")
    page.locator(".live-usage button", has_text="lock").first.click()
    page.locator(".live-node", has_text="[9]").click()
    field = page.get_by_label("Type an operation")
    assert field.input_value() == "lock 1 2 9"
    page.keyboard.press("Enter")
    assert "Receipt 1 protects 3 tokens." in said(page, "Step 3 of 7: lock 1 2 9.")
    assert page.locator(".live-node.locked").count() == 2


def test_the_whole_list_can_be_edited_and_reset_asks_first(page: Page, server: Server):
    go(page, server)
    page.get_by_text("Edit the whole list").click()
    area = page.get_by_label("All operations")
    expect(area).to_have_value("\n".join(RADIX))
    area.fill("insert 4 5\n\nmatch 4\n")
    press(page, "Use this list")
    assert "1 of 1 tokens found" in said(page, "Step 2 of 2")
    assert lines(page) == ["insert 4 5", "match 4"]
    page.once("dialog", lambda dialog: dialog.dismiss())
    press(page, "Reset")
    assert lines(page) == ["insert 4 5", "match 4"]
    page.once("dialog", lambda dialog: dialog.accept())
    press(page, "Reset")
    said(page, "Step 0 of 6")
    assert lines(page) == list(RADIX)


def test_a_prediction_comes_before_the_picture(drawing: Page):
    page = drawing
    page.get_by_label("Predict, then reveal").check()
    press(page, "One step forward")
    assert "Say it, then press Reveal" in said(page, "Step 1")
    for part in (".live-picture", ".live-sizes", ".live-words"):
        assert page.locator(part).is_hidden()
    assert "0 of 3" not in page.locator(".live-status").inner_text()
    press(page, "Reveal")
    said(page, "0 of 3 tokens were there already.")
    assert len(nodes(page)) == 2
    press(page, "One step forward")
    said(page, "Say it")
    press(page, "One step back")  # that one was seen
    said(page, "0 of 3 tokens were there already.")
    assert page.locator(".live-picture").is_visible()


def test_the_copied_test_passes_on_the_engine(
    chromium: Browser, server: Server, tmp_path: Path
):
    context = chromium.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    with watched_page(context, server) as page:
        go(page, server)
        press(page, "Copy as a test")
        said(page, "✓ copied")
        copied = page.evaluate("navigator.clipboard.readText()")
    assert "def test_the_steps():" in copied and "pytest.raises" in copied
    file = tmp_path / "test_copied.py"
    file.write_text(copied)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    context.close()


def test_the_keyboard_is_enough(page: Page, server: Server):
    go(page, server)
    focused = """document.activeElement.getAttribute("aria-label")
      ?? document.activeElement.textContent"""

    def tab_to(wanted: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if (page.evaluate(focused) or "").startswith(wanted):
                return
        raise AssertionError(f"Tab does not come to {wanted}")

    tab_to("One step forward")
    page.keyboard.press("Enter")
    said(page, "Step 1 of 6")
    page.keyboard.press("Enter")  # the focus stayed
    said(page, "Step 2 of 6")
    tab_to("[9]")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.value") == "match 1 2 9"
    page.keyboard.press("Enter")
    said(page, "3 of 3 tokens found")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "Remove match 1 2 3 4"


def test_the_state_can_be_read_without_the_picture(drawing: Page):
    page = drawing
    press(page, "insert 1 2 9")
    said(page, "Step 2")
    page.locator(".live details").filter(has=page.locator(".live-words")).evaluate(
        "(e) => { e.open = true; }"
    )
    assert page.locator(".live-words").inner_text() == (
        "root\n"
        "└─ [1, 2]  slots 0, 1  used at 2  + new\n"
        "   └─ [3]  slots 2  used at 1  ~ changed\n"
        "   └─ [9]  slots 5  used at 2  + new\n\n"
        "evictable 4, protected 0"
    )
    assert page.locator(".live-status").get_attribute("role") == "status"
    assert page.locator("[aria-current=step]").inner_text() == "insert 1 2 9"


def test_on_a_phone_only_the_picture_scrolls(chromium: Browser, server: Server):
    wide = [f"insert {first} {first + 1} {first + 2}" for first in range(10, 40, 3)]
    server.overlay["/wide.html"] = document(live("radix", *wide))
    phone = {"width": 360, "height": 640}
    context = chromium.new_context(viewport=phone, has_touch=True)
    with watched_page(context, server) as page:
        go(page, server, "wide.html")
        page.get_by_role("button", name="To the end").tap()
        said(page, "Step 10 of 10")
        page.get_by_text("The same as text").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        picture = page.locator(".live-picture")
        assert picture.evaluate("(e) => e.scrollWidth > e.clientWidth")
        size = "(e) => getComputedStyle(e).fontSize"
        assert page.get_by_label("Type an operation").evaluate(size) == "16px"
        for button in page.locator(".live button:visible").all():
            assert button.bounding_box()["height"] >= 44
            assert button.bounding_box()["width"] >= 44
    context.close()


def test_the_picture_follows_the_pages_colours(drawing: Page):
    page = drawing
    press(page, "One step forward")
    said(page, "Step 1")
    new = page.locator(".live-node.new rect")
    colour = "(e) => getComputedStyle(e).stroke"
    assert new.evaluate(colour) == "rgb(11, 107, 46)"
    page.evaluate("document.body.dataset.mdColorScheme = 'slate'")
    assert new.evaluate(colour) == "rgb(125, 220, 154)"
    page.evaluate("document.body.dataset.mdColorScheme = 'default'")


@pytest.mark.parametrize(
    "path", ["/runtime/pyodide.asm.wasm", "/worker.js", "/python/live/play.py"]
)
def test_what_cannot_be_loaded_names_the_local_command(
    chromium: Browser, server: Server, path: str
):
    context = chromium.new_context()  # not watched: the scripts log what is missing
    page = context.new_page()
    go(page, server)
    server.overlay[path] = None
    press(page, "One step forward")
    command = said(page, ". On your machine")
    assert ".venv/bin/python tools/play.py 11 radix 'insert 1 2 3'" in command
    assert page.locator(".live").get_attribute("aria-busy") == "false"
    assert page.locator(".live-operations").is_visible()
    del server.overlay[path]
    press(page, "One step forward")
    said(page, "Step 1 of 6: insert 1 2 3.")  # the next try is a new one
    context.close()


def test_two_drawings_share_one_pair_of_workers(page: Page, server: Server):
    server.overlay["/two.html"] = document(live("radix", *RADIX) * 2)
    go_two = f"{server.url}/two.html"
    page.goto(go_two)
    for number in (0, 1):
        drawing = page.locator(".live").nth(number)
        drawing.get_by_role("button", name="One step forward").click()
        drawing.locator(".live-node.new").wait_for()
    page.wait_for_timeout(2_000)
    assert len(page.workers) == 2  # one that answers, one that waits


def test_navigation_that_keeps_scripts_starts_again(page: Page, server: Server):
    """Material's instant loading: the body is new, `document$` says so."""
    observable = """<script>window.document$ = {
      all: [], subscribe(f) { this.all.push(f); f(); },
      next() { for (const f of this.all) f(); },
    };</script>"""
    server.overlay["/instant.html"] = document(live("radix", *RADIX), observable)
    go(page, server, "instant.html")
    press(page, "One step forward")
    said(page, "Step 1")
    page.evaluate(
        "(html) => { document.body.innerHTML = html; document$.next(); }",
        live("radix", "insert 8 9"),
    )
    press(page, "To the end")
    said(page, "Step 1 of 1: insert 8 9.")
    page.wait_for_timeout(2_000)
    assert len(page.workers) == 2


def test_nothing_moves_for_a_reader_who_wants_that(chromium: Browser, server: Server):
    context = chromium.new_context(reduced_motion="reduce")
    with watched_page(context, server) as page:
        server.overlay["/moving.html"] = document(
            live("radix", *RADIX), "<style>.live button { transition: all 1s }</style>"
        )
        go(page, server, "moving.html")
        button = page.get_by_role("button", name="One step forward")
        duration = button.evaluate("(e) => getComputedStyle(e).transitionDuration")
        assert duration == "0s"
    context.close()
