"""A live drawing of chapter 3's pool: who has which page, and the page table."""

from __future__ import annotations

from typing import Any

from live.play import (
    BadInput,
    Operation,
    Picture,
    Row,
    Size,
    Table,
    World,
    listed,
    play,
)

from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    slots_of_pages,
)


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Play operations on an empty pool; see `play`."""
    return play(PoolWorld, asked)


class PoolWorld(World):
    """A pool, and the requests that hold its pages."""

    title = "the paged pool"
    options = {"page_size": "4", "pages": "6"}

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.page_size = self.whole("page_size", 1, 16)
        self.pool = PageAllocator(self.whole("pages", 1, 32))
        self.pages: dict[str, list[int]] = {}  # request -> its pages, in order
        self.lengths: dict[str, int] = {}  # request -> its tokens

    def admit(self, name: str, num_tokens: int) -> str:
        if name in self.pages:
            raise BadInput(f"request {name} is here already; give another name")
        if num_tokens < 1:
            raise BadInput("a request has at least one token")
        pages = self._take(f"pages_{name}", num_pages_for(num_tokens, self.page_size))
        self.pages[name], self.lengths[name] = pages, num_tokens
        return f"{num_tokens} tokens need {_count(pages)}."

    def grow(self, name: str, num_tokens: int) -> str:
        self._need(name)
        length = self.lengths[name] + num_tokens
        missing = num_pages_for(length, self.page_size) - len(self.pages[name])
        pages = self._take("more", missing)
        if pages:
            self.code.append(f"pages_{name} += more")
        self.pages[name] += pages
        self.lengths[name] = length
        more = _count(pages) if pages else "no page: its last one has room"
        return f"{name} has {length} tokens now; it took {more}."

    def free(self, name: str) -> str:
        self._need(name)
        self.code.append(f"pool.free(pages_{name})")
        self.pool.free(self.pages[name])
        pages = self.pages.pop(name)
        del self.lengths[name]
        return f"{_count(pages)} of {name} went back."

    def free_page(self, page: int) -> str:
        """Only the pool knows whether this makes sense; nobody asks its holder."""
        if any(page in pages for pages in self.pages.values()):
            raise BadInput(f"page {page} is a request's: free the whole request")
        self.code.append(f"pool.free([{page}])")
        self.pool.free([page])
        return f"Page {page} went back."

    operations = (
        Operation("admit NAME COUNT", "a request of so many tokens comes", admit),
        Operation("grow NAME COUNT", "it gets so many tokens more", grow),
        Operation("free NAME", "it has ended: its pages go back", free),
        Operation("free-page COUNT", "give back a page that nobody holds", free_page),
    )

    def setup(self) -> list[str]:
        return [
            "from minisgl.kvcache.page_allocator import PageAllocator",
            "",
            f"pool = PageAllocator({self.pool.num_pages})",
        ]

    def sizes(self) -> list[Size]:
        return [Size("free pages", "pool.num_free", self.pool.num_free)]

    def check(self) -> None:
        places = dict.fromkeys(self.pool.free_pages, "free")
        for name, pages in self.pages.items():
            for page in pages:
                assert page not in places, f"page {page} is {name}'s and {places[page]}"
                places[page] = f"{name}'s"
        assert len(places) == self.pool.num_pages, f"a page is lost: {places}"

    def picture(self) -> Picture:
        holders = {page: name for name, held in self.pages.items() for page in held}
        pool = [
            Row(
                [f"page {page}", _slots([page], self.page_size), *self._use(page, name)]
            )
            for page in range(self.pool.num_pages)
            for name in [holders.get(page)]
        ]
        rows = [
            Row(
                [
                    name,
                    str(self.lengths[name]),
                    listed(pages),
                    listed(slots_of_pages(pages, self.page_size)[: self.lengths[name]]),
                ]
            )
            for name, pages in self.pages.items()
        ]
        free = self.pool.free_pages
        return Picture(
            tables=[
                Table("The pool", ["page", "slots", "holder", "tokens in it"], pool),
                Table(
                    "The page table",
                    ["request", "tokens", "pages", "slot of each token"],
                    rows,
                ),
                Table(
                    "The stack of free pages",
                    ["", "next one first"],
                    [Row(["free", listed(free) or "none"])],
                ),
            ]
        )

    def _use(self, page: int, name: str | None) -> list[str]:
        """Who holds a page, and how many tokens lie in it."""
        if name is None:
            return ["free", ""]
        before = self.pages[name].index(page) * self.page_size
        return [name, str(min(self.lengths[name] - before, self.page_size))]

    def _take(self, variable: str, num_pages: int) -> list[int]:
        if num_pages:
            self.code.append(f"{variable} = pool.allocate({num_pages})")
        return self.pool.allocate(num_pages)

    def _need(self, name: str) -> None:
        if name not in self.pages:
            known = ", ".join(self.pages) or "nobody"
            raise BadInput(f"there is no request {name}; here is: {known}")


def _count(pages: list[int]) -> str:
    return f"{len(pages)} page{'s' * (len(pages) != 1)} ({listed(pages)})"


def _slots(pages: list[int], page_size: int) -> str:
    slots = slots_of_pages(pages, page_size)
    return str(slots[0]) if page_size == 1 else f"{slots[0]}..{slots[-1]}"
