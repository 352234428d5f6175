"""A live drawing of chapter 7: the rows of requests, and who owns which part of them.

The requests are the stage's `Req`, the pages come from its `PageAllocator`. What moves
them is told once more, because the stage's own manager writes a tensor: admit, share
and finish do in this order what `scheduler/cache.py` does. The prefix cache is a
dictionary of pages, as in the chapter's tests.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from live.play import (
    BadInput,
    Operation,
    Picture,
    Row,
    Size,
    Table,
    World,
    in_python,
    listed,
    play,
)

from minisgl.core import Req, SamplingParams
from minisgl.errors import IntegrityError
from minisgl.kvcache.page_allocator import PageAllocator, num_pages_for

Prefix = tuple[int, ...]
FIRST_SAMPLED = 100  # what a request of n tokens samples is 100 + n: easy to tell


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Play operations on an empty pool and an empty cache; see `play`."""
    return play(OwnersWorld, asked)


class OwnersWorld(World):
    """A pool, a cache that keeps pages, and the rows of requests."""

    title = "who owns which page"
    options = {"page_size": "2", "pages": "8"}

    def __init__(self, options: dict[str, str] | None = None) -> None:
        super().__init__(options or {})
        self.page_size = self.whole("page_size", 1, 16)
        self.pool = PageAllocator(self.whole("pages", 1, 32))
        self.reqs: dict[str, Req] = {}
        self.rows: dict[str, list[int]] = {}  # request -> its pages, in order
        self.cache: dict[Prefix, int] = {}  # all tokens up to a page's end -> the page
        self.locks: dict[int, int] = {}  # page of the cache -> requests that need it

    def admit(self, name: str, tokens: list[int]) -> str:
        if name in self.reqs:
            raise BadInput(f"request {name} is here already; give another name")
        self._note("admit", name, tokens)
        # the last token is never taken from the cache: it has no logits
        handle = self._match(tokens[:-1])
        self._lock(handle, 1)
        self.rows[name] = handle[:]
        self.reqs[name] = Req(
            input_ids=array("i", tokens),
            table_idx=len(self.reqs),
            cached_len=len(handle) * self.page_size,
            output_len=64,
            uid=len(self.reqs),
            sampling_params=SamplingParams(),
            cache_handle=handle,
        )
        if not handle:
            return f"{name} finds nothing in the cache."
        found = f"{len(handle) * self.page_size} of {len(tokens)} tokens"
        return f"{name} finds {found} in the cache, and locks them."

    def compute(self, name: str) -> str:
        req = self._req(name)
        if not req.can_decode:
            raise BadInput(f"{name} may not become longer: finish {name}")
        self._note("compute", name)
        computed = req.extend_len
        missing = num_pages_for(req.device_len, self.page_size) - len(self.rows[name])
        pages = self.pool.allocate(missing)
        self.rows[name] += pages
        req.complete_one()
        req.append_host(FIRST_SAMPLED + req.cached_len)
        are = "token is" if computed == 1 else "tokens are"
        return f"{computed} {are} computed for {name}; it took {_pages(pages)}."

    def share(self, name: str) -> str:
        req = self._req(name)
        self._note("share", name)
        handle, duplicates = self._insert(name)
        self.rows[name][: len(handle)] = handle  # first the row,
        self._lock(handle, 1)  # then the lock of the new prefix,
        self._lock(req.cache_handle, -1)
        req.cache_handle = handle
        self.pool.free(duplicates)  # and then nobody reads the copies any more
        freed = _freed(duplicates, "which the cache had already")
        return f"{name} reads {_pages(handle)} from the cache now.{freed}"

    def finish(self, name: str) -> str:
        req = self._req(name)
        self._note("finish", name)
        handle, duplicates = self._insert(name)
        self._lock(req.cache_handle, -1)
        tail = self.rows[name][len(handle) :]
        self.pool.free(duplicates + tail)
        del self.reqs[name], self.rows[name]
        freed = _freed(duplicates, "which the cache had already")
        freed += _freed(tail, "which is not full")
        return f"{name} has ended; the cache has {_pages(handle)} of it.{freed}"

    operations = (
        Operation(
            "admit NAME TOKENS", "a request comes, and looks for its prefix", admit
        ),
        Operation(
            "compute NAME", "its known tokens are computed, one is sampled", compute
        ),
        Operation("share NAME", "the cache takes over what is computed", share),
        Operation("finish NAME", "it has ended; the cache keeps whole pages", finish),
    )

    def setup(self) -> list[str]:
        options = {k: v for k, v in self.given.items() if v != self.options[k]}
        return [
            "from live.owners import OwnersWorld  # in practice/web/python",
            "",
            f"world = OwnersWorld({in_python(options or None)})",
        ]

    def sizes(self) -> list[Size]:
        return [
            Size("free pages", "world.num_free", self.num_free),
            Size(
                "pages to be evicted at will", "world.num_evictable", self.num_evictable
            ),
            Size("protected pages", "world.num_protected", self.num_protected),
        ]

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    @property
    def num_evictable(self) -> int:
        return len(self.cache) - self.num_protected

    @property
    def num_protected(self) -> int:
        return sum(count > 0 for count in self.locks.values())

    def check(self) -> None:
        """Every page is in one place, and every row begins with the cache's pages."""
        places = dict.fromkeys(self.pool.free_pages, "free")
        owned = [(page, "the cache's") for page in self.cache.values()]
        for name, req in self.reqs.items():
            handle, row = req.cache_handle, self.rows[name]
            if row[: len(handle)] != handle:
                raise IntegrityError(f"{name}'s row is {row}, its handle {handle}")
            owned += [(page, f"{name}'s") for page in row[len(handle) :]]
        for page, owner in owned:
            if page in places:
                raise IntegrityError(f"page {page} is {owner}, and {places[page]}")
            places[page] = owner
        if len(places) < self.pool.num_pages:
            raise IntegrityError(f"{self.pool.num_pages - len(places)} pages are lost")
        locks = dict.fromkeys(self.cache.values(), 0)
        for req in self.reqs.values():
            for page in req.cache_handle:
                locks[page] += 1
        if locks != self.locks:
            raise IntegrityError(f"the locks are {self.locks}, and should be {locks}")

    def picture(self) -> Picture:
        rows = [row for name in self.reqs for row in self._row(name)]
        head = ["position", "token", "page", "belongs to"]
        pages = [
            Row([f"page {page}", *self._holder(page)])
            for page in range(self.pool.num_pages)
        ]
        return Picture(
            tables=[
                Table("The rows of the requests", head, rows),
                Table("The pool", ["page", "holder", "locks"], pages),
            ]
        )

    def _row(self, name: str) -> Iterator[Row]:
        req, pages = self.reqs[name], self.rows[name]
        cached_len = len(req.cache_handle) * self.page_size
        for position, token in enumerate(req.input_ids):
            owner, page = f"{name} alone", ""
            if position < req.cached_len:
                page = str(pages[position // self.page_size])
            else:
                owner = "nobody yet: not computed"
            if position < cached_len:
                owner = f"the cache, locked by {name}"
            yield Row([f"{name} {position}", str(token), page, owner])

    def _holder(self, page: int) -> list[str]:
        for prefix, held in self.cache.items():
            if held == page:
                tokens = listed(prefix[-self.page_size :])
                count = self.locks[page]
                return [f"cache [{tokens}]", str(count) if count else "none: evictable"]
        for name, req in self.reqs.items():
            if page in self.rows[name][len(req.cache_handle) :]:
                return [name, ""]
        return ["free", ""]

    def _insert(self, name: str) -> tuple[list[int], list[int]]:
        """Offer what is computed: the cache's pages, and the copies they replace."""
        req, row = self.reqs[name], self.rows[name]
        tokens = list(req.input_ids[: req.cached_len])
        for page, prefix in zip(row, self._prefixes(tokens), strict=False):
            if prefix not in self.cache:
                self.cache[prefix] = page
                self.locks[page] = 0
        handle = self._match(tokens)
        both = zip(row, handle, strict=False)
        return handle, [page for page, kept in both if page != kept]

    def _match(self, tokens: list[int]) -> list[int]:
        pages = []
        for prefix in self._prefixes(tokens):
            if prefix not in self.cache:
                break
            pages.append(self.cache[prefix])
        return pages

    def _lock(self, pages: list[int], by: int) -> None:
        for page in pages:
            self.locks[page] += by

    def _prefixes(self, tokens: list[int]) -> list[Prefix]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [tuple(tokens[:end]) for end in ends]

    def _req(self, name: str) -> Req:
        if name not in self.reqs:
            known = ", ".join(self.reqs) or "nobody"
            raise BadInput(f"there is no request {name}; here is: {known}")
        return self.reqs[name]

    def _note(self, verb: str, *arguments: object) -> None:
        self.code.append(f"world.{verb}({in_python(*arguments)})")


def _pages(pages: list[int]) -> str:
    if not pages:
        return "no page"
    return f"page{'s' * (len(pages) > 1)} {listed(pages)}"


def _freed(pages: list[int], what: str) -> str:
    if not pages:
        return ""
    return f" {_pages(pages).capitalize()}, {what}, went back."
