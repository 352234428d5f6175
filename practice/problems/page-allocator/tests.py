"""The page allocator: small calls, refusals, and random traffic beside a model."""

import random
from contextlib import suppress

from grading import draw_table, test
from minisgl.errors import PoolError

WHOLE = "all or nothing: a call that cannot have all its pages gets none"
DOUBLE = "a page that is free already cannot be freed again: two requests would get it"
TWICE = "a page that comes twice in one call must not get into the free list twice"
UNCHANGED = "a refused call changes nothing: find every mistake, then change the books"


@test("pages come out in order, and come back to the front", example=True)
def _(answer, check):
    allocator = answer.PageAllocator(4)
    check.equal(
        allocator.allocate(3),
        [0, 1, 2],
        call="PageAllocator(4).allocate(3)",
        look="the next page is the last of _free: take from its end, next one first",
    )
    allocator.free([2, 0])
    check.equal(
        allocator.free_pages,
        [2, 0, 3],
        call="PageAllocator(4), allocate(3), free([2, 0]), free_pages",
        look="the pages that came back go before the others, in the order they came",
    )


@test("a double free is refused", example=True)
def _(answer, check):
    allocator = answer.PageAllocator(4)
    allocator.allocate(3)
    allocator.free([2, 0])
    check.raises(
        PoolError,
        lambda: allocator.free([1, 0]),
        call="PageAllocator(4), allocate(3), free([2, 0]), free([1, 0])",
        mentions=["page 0"],
        look=DOUBLE,
    )
    check.equal(
        allocator.free_pages,
        [2, 0, 3],
        call="PageAllocator(4), allocate(3), free([2, 0]), the refused free([1, 0]), "
        "free_pages",
        look=UNCHANGED,
    )


@test("allocation is all or nothing")
def _(answer, check):
    allocator = answer.PageAllocator(3)
    allocator.allocate(1)
    for wanted in (3, -1):
        check.raises(
            PoolError,
            lambda wanted=wanted: allocator.allocate(wanted),
            call=f"PageAllocator(3), allocate(1), allocate({wanted})",
            mentions=[str(wanted)],
            look=WHOLE if wanted > 0 else "a number of pages is 0 or more",
        )
        check.equal(
            allocator.free_pages,
            [1, 2],
            call=f"PageAllocator(3), allocate(1), the refused allocate({wanted}), "
            "free_pages",
            look=UNCHANGED,
        )
    check.equal(
        allocator.allocate(2),
        [1, 2],
        call="PageAllocator(3), allocate(1), allocate(2)",
        look="exactly as many as are free can be had",
    )
    check.equal(
        allocator.allocate(0),
        [],
        call="allocate(0) of a pool that is empty",
        look="no pages can always be had",
    )


@test("what cannot be freed is named, and nothing changes")
def _(answer, check):
    own = f"{UNCHANGED}; page ids are ints from 0 to num_pages - 1"
    for pages, named, look in [
        ([3], "page 3", DOUBLE),
        ([1, 4], "page 4", DOUBLE),
        ([2, 0, 2], "page 2", TWICE),
        ([0, 5], "page 5", own),
        ([-1], "page -1", own),
        ([0, 1.0], "page 1.0", "1.0 equals the page 1, and is none: look at the type"),
        ([True], "page True", "True equals the page 1, and is none: look at the type"),
    ]:
        allocator = answer.PageAllocator(5)
        allocator.allocate(3)
        check.raises(
            PoolError,
            lambda pages=pages, allocator=allocator: allocator.free(pages),
            call=f"PageAllocator(5), allocate(3), free({pages})",
            mentions=[named],
            look=look,
        )
        check.equal(
            allocator.free_pages,
            [3, 4],
            call=f"PageAllocator(5), allocate(3), the refused free({pages}), "
            "free_pages",
            look=UNCHANGED,
        )
        allocator.free([0, 1, 2])
        check.equal(
            allocator.free_pages,
            [0, 1, 2, 3, 4],
            call=f"PageAllocator(5), allocate(3), the refused free({pages}), "
            "free([0, 1, 2]), free_pages",
            look=UNCHANGED,
        )


@test("any iterable of pages will do")
def _(answer, check):
    allocator = answer.PageAllocator(3)
    allocator.allocate(3)
    allocator.free(page for page in (0, 2))
    allocator.free([])
    check.equal(
        allocator.free_pages,
        [0, 2],
        call="PageAllocator(3), allocate(3), free(page for page in (0, 2)), free([]), "
        "free_pages",
        look="a generator can be walked through once: make a list of it first",
    )


@test("the caller's lists are the caller's")
def _(answer, check):
    allocator = answer.PageAllocator(4)
    pages = allocator.allocate(2)
    pages.append(3)
    check.equal(
        allocator.free_pages,
        [2, 3],
        call="pages = PageAllocator(4).allocate(2), pages.append(3), free_pages",
        look="hand out a list of its own, not one that the allocator keeps",
    )
    returned = [0, 1]
    allocator.free(returned)
    check.equal(
        returned,
        [0, 1],
        call="pages = [0, 1], free(pages), pages",
        look="the caller's list must stay as it was",
    )


class Model:
    """A list of free pages, next one first, and nothing clever."""

    def __init__(self, num_pages):
        self.num_pages = num_pages
        self.pages = list(range(num_pages))

    def allocate(self, num_pages):
        if not 0 <= num_pages <= len(self.pages):
            raise PoolError
        taken, self.pages = self.pages[:num_pages], self.pages[num_pages:]
        return taken

    def free(self, pages):
        used = set(range(self.num_pages)) - set(self.pages)
        if len(set(pages)) < len(pages) or not set(pages) <= used:
            raise PoolError
        self.pages = [*pages, *self.pages]

    def state(self):
        return {"free_pages": list(self.pages), "num_free": len(self.pages)}


class Real:
    def __init__(self, answer, num_pages):
        self.allocator = answer.PageAllocator(num_pages)

    def allocate(self, num_pages):
        return self.allocator.allocate(num_pages)

    def free(self, pages):
        return self.allocator.free(list(pages))

    def state(self):
        allocator = self.allocator
        return {"free_pages": allocator.free_pages, "num_free": allocator.num_free}


def draw(world):
    state = world.state()
    return draw_table(
        ["free pages, next one first", "num_free"],
        [[", ".join(map(str, state["free_pages"])), state["num_free"]]],
    )


def traffic(rng, num_pages, length):
    """Random calls, a quarter of them mistakes."""
    model, operations = Model(num_pages), []
    for _ in range(length):
        used = sorted(set(range(num_pages)) - set(model.pages))
        kind = rng.random()
        if kind < 0.4:
            operation = ("allocate", rng.randint(0, 4))
        else:
            pages = rng.sample(used, min(len(used), rng.randint(0, 3)))
            if kind > 0.75:
                strays = [*model.pages, *pages, -1, num_pages]
                pages.insert(rng.randint(0, len(pages)), rng.choice(strays))
            operation = ("free", pages)
        operations.append(operation)
        with suppress(PoolError):
            getattr(model, operation[0])(operation[1])
    return operations


@test("random traffic: every page is free or in use")
def _(answer, check):
    for seed in range(6):
        rng = random.Random(seed)
        num_pages = rng.choice([1, 3, 8])
        check.operations(
            traffic(rng, num_pages, 40),
            expected=lambda n=num_pages: Model(n),
            actual=lambda n=num_pages: Real(answer, n),
            look=f"follow the free pages of PageAllocator({num_pages}) through these "
            "calls",
            draw=draw,
        )
