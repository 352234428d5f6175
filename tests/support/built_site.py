"""The real site, built once in a session; and once with Zensical."""

from __future__ import annotations

import resource
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urldefrag

import pytest

from support.page_course import REPO, run_builder

_SCRATCH = TemporaryDirectory(prefix="site-")


@dataclass(frozen=True)
class BuiltSite:
    """A finished site in `root`."""

    root: Path
    cpu_seconds: float  # of the build; others may share the machine
    printed: str

    @property
    def pages(self) -> dict[str, str]:
        """Path -> HTML of every page."""
        return {
            path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(self.root.rglob("*.html"))
        }


@pytest.fixture(scope="session")
def built_site() -> BuiltSite:
    """The site as `make site` builds it, with the browser's files if they are built.

    Serve `built_site.root` over HTTP to open it: scripts do not run from files.
    """
    return build_site()


@cache  # several test files import the fixture
def build_site() -> BuiltSite:
    """What MkDocs makes of this checkout; it must succeed."""
    root = Path(_SCRATCH.name) / "mkdocs"
    before = _cpu_seconds()
    done = run_builder("mkdocs", REPO, "--site-dir", str(root))
    return BuiltSite(root, _cpu_seconds() - before, _printed(done))


@cache
def build_with_zensical() -> BuiltSite:
    """What Zensical makes of the same pages. It builds in its own folder only."""
    folder = Path(_SCRATCH.name) / "zensical"
    shutil.copytree(REPO / "docs", folder / "docs")
    shutil.copy(REPO / "mkdocs.yml", folder)
    before = _cpu_seconds()
    done = run_builder("zensical", folder)
    return BuiltSite(folder / "site", _cpu_seconds() - before, _printed(done))


def _cpu_seconds() -> float:
    """CPU time of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _printed(done: subprocess.CompletedProcess[str]) -> str:
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    return printed


class Seen(HTMLParser):
    """What one page refers to, and what it says outside code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []  # of <a>
        self.loaded: list[str] = []  # what a browser fetches by itself
        self.text: list[str] = []
        self.in_code = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "href" in values and values.get("rel") not in ("canonical", "edit"):
            self.loaded.append(values["href"])
        self.loaded += [values[key] for key in ("src", "srcset") if key in values]
        self.in_code += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.in_code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self.in_code:
            self.text.append(data)


def broken_links(site: BuiltSite) -> list[str]:
    """`page -> link` for every link inside the site that leads nowhere."""
    seen = {path: Seen(html) for path, html in site.pages.items()}
    broken = []
    for path, page in seen.items():
        for link in page.links + page.loaded:
            if "//" in link or link.startswith(("mailto:", "data:", "javascript:")):
                continue
            url, anchor = urldefrag(link)
            target = path if not url else _resolved(site.root, path, unquote(url))
            if target is None:
                broken.append(f"{path} -> {link}")
            elif anchor and target in seen and anchor not in seen[target].ids:
                broken.append(f"{path} -> {link} (no such anchor)")
    return broken


def _resolved(root: Path, page: str, url: str) -> str | None:
    top = root.resolve()
    file = (top if url.startswith("/") else top / Path(page).parent) / url.lstrip("/")
    file = file.resolve()
    if file.is_dir():
        file /= "index.html"
    if not file.is_file() or not file.is_relative_to(top):
        return None
    return file.relative_to(top).as_posix()
