"""Rows of a page table: boundaries, refusals, and several requests that grow."""

import random

from grading import NotApplicable, draw_table, test
from minisgl.errors import PoolError
from minisgl.kvcache.page_allocator import PageAllocator

ROOM = "the last page still has room: count the pages for all tokens, not for the new"
BEGIN = "new pages begin where the last page ends, at a multiple of page_size"
KEEP = "the slots of the last page hold keys already: they stay where they are"
ONCE = "take all pages in one call, before you write any slot"


def pool(*free):
    """An allocator whose free pages are these, the first one first."""
    allocator = PageAllocator(max(free, default=0) + 9)
    taken = allocator.allocate(allocator.num_pages)
    allocator.free(free)
    assert taken and allocator.free_pages == list(free)
    return allocator


def grown(answer, row, old_len, new_len, page_size, allocator):
    """What the call returns and leaves behind."""
    pages = answer.extend_row(row, old_len, new_len, page_size, allocator)
    return {"pages": pages, "row": row, "free": allocator.free_pages}


@test("tokens that fit in the last page need none", example=True)
def _(answer, check):
    row = [20, 21, 22, 23, 8, 9, 10, 11, 0, 0, 0, 0]
    check.equal(
        grown(answer, list(row), 6, 8, 4, pool(7, 3)),
        {"pages": [], "row": row, "free": [7, 3]},
        call=f"extend_row({row}, 6, 8, 4, allocator with pages 7, 3)",
        look=ROOM,
    )


@test("one token more needs a page", example=True)
def _(answer, check):
    row = [20, 21, 22, 23, 8, 9, 10, 11, 0, 0, 0, 0]
    check.equal(
        grown(answer, list(row), 8, 9, 4, pool(7, 3)),
        {"pages": [7], "row": [*row[:8], 28, 29, 30, 31], "free": [3]},
        call=f"extend_row({row}, 8, 9, 4, allocator with pages 7, 3)",
        look=BEGIN,
    )


@test("a request that grows from inside a page keeps that page")
def _(answer, check):
    row = [20, 21, 22, 23, 8, 9, 10, 11, 0, 0, 0, 0]
    result = grown(answer, list(row), 6, 9, 4, pool(7, 3))
    call = f"extend_row({row}, 6, 9, 4, allocator with pages 7, 3)"
    check.equal(
        result["row"][:6],
        row[:6],
        call=f"{call}; row[:6]",
        look=KEEP,
    )
    check.equal(
        result,
        {"pages": [7], "row": [*row[:8], 28, 29, 30, 31], "free": [3]},
        call=call,
        look=BEGIN,
    )


@test("a new request, several pages, in the order in which they came")
def _(answer, check):
    stale = [40, 41, 42, 43, 44, 45, 46, 47, 48]
    for old_len, new_len, pages, row, look in [
        (0, 1, [6], [18, 19, 20, *stale[3:]], "the first token needs a page too"),
        (0, 3, [6], [18, 19, 20, *stale[3:]], "three tokens fill a page of 3 exactly"),
        (
            0,
            4,
            [6, 1],
            [18, 19, 20, 3, 4, 5, *stale[6:]],
            "the second page begins behind the first, and is written in full",
        ),
        (
            0,
            9,
            [6, 1, 5],
            [18, 19, 20, 3, 4, 5, 15, 16, 17],
            "the row is full now, and has as many columns as before",
        ),
        (0, 0, [], stale, "no tokens need no page"),
    ]:
        check.equal(
            grown(answer, list(stale), old_len, new_len, 3, pool(6, 1, 5)),
            {"pages": pages, "row": row, "free": [6, 1, 5][len(pages) :]},
            call=f"extend_row({stale}, {old_len}, {new_len}, 3, "
            "allocator with pages 6, 1, 5)",
            look=look,
        )


@test("slot 0 is a slot like any other")
def _(answer, check):
    check.equal(
        grown(answer, [0, 1, 9, 9, 9, 9], 1, 3, 2, pool(4)),
        {"pages": [4], "row": [0, 1, 8, 9, 9, 9], "free": []},
        call="extend_row([0, 1, 9, 9, 9, 9], 1, 3, 2, allocator with page 4)",
        look="where the request ends is told by old_len, not by what is in the row",
    )


@test("with pages of one slot, every token takes one")
def _(answer, check):
    check.equal(
        grown(answer, [3, 0, 0, 0], 1, 3, 1, pool(2, 8)),
        {"pages": [2, 8], "row": [3, 2, 8, 0], "free": []},
        call="extend_row([3, 0, 0, 0], 1, 3, 1, allocator with pages 2, 8)",
        look=BEGIN,
    )


@test("a pool with too few pages refuses, and nothing has changed")
def _(answer, check):
    row, allocator = [20, 21, 22, 23, 0, 0, 0, 0, 0, 0, 0, 0], pool(7)
    call = f"extend_row({row}, 4, 12, 4, allocator with page 7)"
    check.raises(
        PoolError,
        lambda: answer.extend_row(row, 4, 12, 4, allocator),
        call=call,
        look="two pages are missing and one is free: let the PoolError through",
    )
    check.equal(
        {"row": row, "free": allocator.free_pages},
        {"row": [20, 21, 22, 23, 0, 0, 0, 0, 0, 0, 0, 0], "free": [7]},
        call=f"{call}, after it was refused",
        look=ONCE,
    )


PAGE_SIZE = 3
NUM_PAGES = 6
NAMES = ("A", "B", "C")


class Model:
    """Each request keeps a list of its pages; the row is worked out from them."""

    def __init__(self):
        self.free = list(range(NUM_PAGES))
        self.lens = dict.fromkeys(NAMES, 0)
        self.pages = {name: [] for name in NAMES}
        self.rows = {name: [-1] * NUM_PAGES * PAGE_SIZE for name in NAMES}

    def grow(self, name, tokens):
        new_len = self.lens[name] + tokens
        if new_len > NUM_PAGES * PAGE_SIZE:
            raise NotApplicable
        missing = -(-new_len // PAGE_SIZE) - len(self.pages[name])
        if missing > len(self.free):
            raise PoolError
        taken, self.free = self.free[:missing], self.free[missing:]
        for page in taken:
            for offset in range(PAGE_SIZE):
                column = len(self.pages[name]) * PAGE_SIZE + offset
                self.rows[name][column] = page * PAGE_SIZE + offset
            self.pages[name].append(page)
        self.lens[name] = new_len
        return taken

    def end(self, name):
        self.free = self.pages[name] + self.free
        self.pages[name], self.lens[name] = [], 0

    def state(self):
        return {"rows": self.rows, "free": self.free}


class Real:
    """The same requests, their rows written by the answer."""

    def __init__(self, answer):
        self.answer = answer
        self.allocator = PageAllocator(NUM_PAGES)
        self.lens = dict.fromkeys(NAMES, 0)
        self.rows = {name: [-1] * NUM_PAGES * PAGE_SIZE for name in NAMES}

    def grow(self, name, tokens):
        old_len, row = self.lens[name], self.rows[name]
        pages = self.answer.extend_row(
            row, old_len, old_len + tokens, PAGE_SIZE, self.allocator
        )
        self.lens[name] += tokens
        return pages

    def end(self, name):
        held = self.rows[name][: self.lens[name]]
        self.allocator.free([slot // PAGE_SIZE for slot in held[::PAGE_SIZE]])
        self.lens[name] = 0

    def state(self):
        return {"rows": self.rows, "free": self.allocator.free_pages}


def draw(world):
    """The rows, page by page; a dot where nothing was ever written."""
    rows = []
    for name in NAMES:
        cells = ["." if slot < 0 else str(slot) for slot in world.rows[name]]
        starts = range(0, len(cells), PAGE_SIZE)
        pages = [" ".join(cells[at : at + PAGE_SIZE]) for at in starts]
        rows.append([name, *pages])
    headers = [f"{column} …" for column in range(0, len(world.rows["A"]), PAGE_SIZE)]
    free = ", ".join(map(str, world.state()["free"])) or "none"
    return f"{draw_table(['row', *headers], rows)}\nfree pages: {free}"


@test("three requests grow and end in a small pool")
def _(answer, check):
    for seed in range(5):
        rng = random.Random(seed)
        operations = [
            ("grow", rng.choice(NAMES), rng.randint(1, 5))
            if rng.random() < 0.75
            else ("end", rng.choice(NAMES))
            for _ in range(40)
        ]
        check.operations(
            operations,
            expected=Model,
            actual=lambda: Real(answer),
            look="compare the rows: pages of 3 slots, and every slot in its column",
            draw=draw,
        )
