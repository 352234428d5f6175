"""Fixtures of the browser tests: the built files, a server for them, a page.

A test module asks for them with `pytest_plugins = ["support.browser_fixtures"]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_build.build import build
from browser_build.chromium import FLAGS, find_chromium

from support.browser import REPO, Server, watched_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def built() -> Path:
    """The built browser files of this checkout."""
    return build(REPO).path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        why = "no Chromium here: install Debian's chromium, or set MINISGL_CHROMIUM"
        (pytest.fail if os.environ.get("MINISGL_NEEDS_BROWSER") else pytest.skip)(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[Server]:
    server = Server(built)
    server.overlay["/favicon.ico"] = ""
    server.overlay["/empty.html"] = "<!doctype html><title>empty</title>"
    yield server
    server.close()


@pytest.fixture(scope="module")
def profile(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser profile; its pages share a cache, as a reader's do."""
    context = chromium.new_context()
    yield context
    context.close()


@pytest.fixture
def page(profile: BrowserContext, server: Server) -> Iterator[Page]:
    """An empty page, with nothing in its storage."""
    with watched_page(profile, server) as page:
        yield page
