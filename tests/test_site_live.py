"""The directive `::: live`: what it puts into a page, and how it refuses."""

from __future__ import annotations

import re
from html import unescape

import pytest
from course.pages.errors import PageError
from support.live_pages import RADIX, live


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_it_reads_as_a_list_of_operations_and_what_comes_of_them():
    html = live("radix", *RADIX)
    items = re.findall(r"<li><code>(.*?)</code></li>", html)
    assert items == list(RADIX)
    text = plain(html)
    assert "Live drawing: the radix tree" in text
    assert "evict 9: EvictionError: cannot evict 9 tokens: 1 are evictable" in text
    assert "   └─ [3]  slots 2  lock 1  used at 4  • used\n" in text
    assert text.endswith("evictable 0, protected 3")


def test_it_tells_its_script_kind_chapter_and_options():
    html = live("unified components=full page_size=2", "insert 1 2 3")
    assert 'data-kind="unified" data-chapter="11"' in html
    options = re.search('data-options="(.*?)"', html)[1]
    assert unescape(options) == '{"components": "full", "page_size": "2"}'


def test_it_is_played_on_the_stage_of_its_chapter():
    line = "insert 1 2 3"
    assert "live" in live("pool", "admit a 3", page="docs/03_pool.md")
    with pytest.raises(PageError, match=r"docs/03_pool\.md:1: .*radix_key"):
        live("radix", line, page="docs/03_pool.md")
    with pytest.raises(PageError, match=r"docs/11_.*:1: .*full\+swa is not of this"):
        live("unified components=full+swa", line)
    with pytest.raises(PageError, match="this is no chapter's page"):
        live("radix", line, page="docs/glossary.md")


@pytest.mark.parametrize(
    ("kind", "operations", "line", "why"),
    [
        ("radx", ["insert 1"], 1, "no live drawing radx; did you mean radix?"),
        ("play", ["insert 1"], 1, "there is no live drawing play"),
        ("", ["insert 1"], 1, "::: live takes"),
        ("radix window=4", ["insert 1"], 1, "there is no option window"),
        ("radix page_size=0", ["insert 1"], 1, "page_size=0: give a whole number"),
        ("radix size=1", ["insert 1"], 1, "::: live takes components="),
        ("radix", ["insert 1", "", "inset 2"], 4, "did you mean insert?"),
        ("radix", ["insert 1", "insert x"], 3, "'x' is no token"),
        ("radix", [""], 1, "::: live is empty"),
        ("radix", ["insert 1"] * 101, 1, "101 operations are too many"),
    ],
)
def test_what_it_cannot_draw_fails_the_build_with_page_and_line(
    kind: str, operations: list[str], line: int, why: str
):
    with pytest.raises(PageError) as failed:
        live(kind, *operations)
    assert failed.value.line == line
    assert why in str(failed.value)
