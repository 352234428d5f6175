"""The pages that an insert leaves to its request, in small cases and long sequences.

The cache, the table and the requests here are small ones of the tests' own.
"""

import random
from array import array
from types import SimpleNamespace

from grading import NotApplicable, draw_table, test
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    slots_of_pages,
)

IDENTITY = (
    "a page is a duplicate only where the cache has another page in its place; "
    "compare the request's pages with those of the handle, position by position"
)


class Handle:
    """A receipt for whole pages."""

    def __init__(self, pages, page_size):
        self.pages = pages
        self.page_size = page_size
        self.cached_len = len(pages) * page_size

    def matched_slots(self):
        return slots_of_pages(self.pages, self.page_size)


class ScriptedCache:
    """Says what it is told to say, and remembers what it was given."""

    def __init__(self, cached_len, pages, page_size):
        self.result = SimpleNamespace(
            cached_len=cached_len, handle=Handle(pages, page_size)
        )
        self.given = []

    def insert_prefix(self, tokens, slots):
        self.given.append((list(tokens), list(slots)))
        return self.result


class Tables:
    """The slots of each row."""

    def __init__(self):
        self.rows = {}

    def read_slots(self, row, start, end):
        return self.rows[row][start:end]


def insert(answer, page_size, row, num_computed, cached_len, cache, old=0, extra=1):
    """One `_insert`: the request's pages are `row`, the cache says `cache`.

    Returns the insertion, and the cache with what it was given.
    """
    tables = Tables()
    tables.rows[3] = slots_of_pages(row, page_size)
    scripted = ScriptedCache(cached_len, cache, page_size)
    req = SimpleNamespace(
        input_ids=array("i", range(50, 50 + num_computed + extra)),
        cached_len=num_computed,
        table_idx=3,
        cache_handle=Handle(row[: old // page_size], page_size),
    )
    manager = answer.CacheManager(page_size, tables, scripted)
    return manager._insert(req), scripted


def check_insert(check, answer, expected, look, **case):
    insertion, cache = insert(answer, **case)
    page_size, computed = case["page_size"], case["num_computed"]
    call = (
        f"_insert(a request of {computed} computed tokens on pages {case['row']}), "
        f"page size {page_size}; the cache holds them in pages {case['cache']} now, "
        f"{case['cached_len']} tokens of them since before"
    )
    given = {"duplicates": insertion.duplicates, "tail": insertion.tail}
    check.equal(given, expected, call=call, look=look)
    check.true(
        insertion.handle is cache.result.handle,
        call=call,
        expected="the handle that insert_prefix returned",
        actual="another handle",
        look="the new handle covers all that the cache holds now; pass it on as it is",
    )


@test("the first request hands its pages over", example=True)
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [], "tail": [2]},
        "pages that the cache has taken over are its own now; only what lies behind "
        "the handle's pages is left to the request",
        page_size=2,
        row=[0, 1, 2],
        num_computed=5,
        cached_len=0,
        cache=[0, 1],
    )


@test("a second copy is a duplicate", example=True)
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [3, 4], "tail": [5]},
        IDENTITY,
        page_size=2,
        row=[3, 4, 5],
        num_computed=5,
        cached_len=4,
        cache=[0, 1],
    )


@test("only computed tokens are inserted")
def _(answer, check):
    for extra in (1, 0):
        _, cache = insert(answer, 2, [0, 1, 2], 3, 0, [0], extra=extra)
        check.equal(
            cache.given,
            [([50, 51, 52], [0, 1, 2])],
            call="what insert_prefix is given; 3 tokens are computed, and the request "
            f"has {3 + extra}",
            look="the last sampled token has no KV yet: insert the first `cached_len` "
            "tokens with their slots, and nothing behind them",
        )


@test("a page that came from the cache is not a duplicate")
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [], "tail": [6]},
        "a page that the request reads from the cache is the cache's only copy: "
        "freeing it frees the cache's own page. " + IDENTITY,
        page_size=2,
        row=[0, 1, 6],
        num_computed=5,
        old=4,
        cached_len=4,
        cache=[0, 1],
    )


@test("what was handed over earlier is not a duplicate")
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [], "tail": [2]},
        "these 4 tokens were in the cache before, because this request brought them: "
        "they are not computed twice. " + IDENTITY,
        page_size=2,
        row=[0, 1, 2],
        num_computed=5,
        old=0,
        cached_len=4,
        cache=[0, 1],
    )


@test("a hit, a duplicate, a new page and a tail in one row")
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [5], "tail": [7]},
        IDENTITY,
        page_size=2,
        row=[0, 5, 6, 7],
        num_computed=7,
        old=2,
        cached_len=4,
        cache=[0, 1, 6],
    )
    check_insert(
        check,
        answer,
        {"duplicates": [9, 8], "tail": []},
        IDENTITY,
        page_size=4,
        row=[9, 0, 8],
        num_computed=12,
        cached_len=12,
        cache=[2, 0, 3],
    )


@test("a cache that keeps nothing leaves every page to the request")
def _(answer, check):
    check_insert(
        check,
        answer,
        {"duplicates": [], "tail": [4, 2, 0]},
        "what the handle does not cover is the tail, whole pages too",
        page_size=2,
        row=[4, 2, 0],
        num_computed=5,
        cached_len=0,
        cache=[],
    )


@test("a page is named once, whatever its size")
def _(answer, check):
    for page_size in (1, 3, 16):
        check_insert(
            check,
            answer,
            {"duplicates": [4, 5], "tail": []},
            "the allocator takes pages, not slots: name each page once",
            page_size=page_size,
            row=[4, 5],
            num_computed=2 * page_size,
            cached_len=2 * page_size,
            cache=[0, 1],
        )


# --- sequences: requests that begin, grow, share and end ------------------------------


def in_use(allocator):
    return sorted(set(range(allocator.num_pages)) - set(allocator.free_pages))


class Model:
    """What must come of it: every whole prefix has one page, whoever computed it."""

    def __init__(self, page_size, num_pages):
        self.page_size = page_size
        self.allocator = PageAllocator(num_pages)
        self.cached = {}  # tokens up to the end of a page -> the cache's page
        self.requests = {}  # name -> (tokens, pages)

    def begin(self, name, tokens):
        if name in self.requests:
            raise NotApplicable(f"{name} is running")
        pages = []
        for end in range(self.page_size, len(tokens), self.page_size):
            if tuple(tokens[:end]) not in self.cached:
                break
            pages.append(self.cached[tuple(tokens[:end])])
        self.requests[name] = ([], pages)
        self.grow(name, tokens)

    def grow(self, name, tokens):
        old, pages = self._request(name)
        total = num_pages_for(len(old) + len(tokens), self.page_size)
        pages += self.allocator.allocate(total - len(pages))
        old += tokens

    def share(self, name):
        duplicates, tail = self._insert(name)
        self.allocator.free(duplicates)
        return {"duplicates": duplicates, "tail": tail}

    def share_twice(self, name):
        """Inserts again while the request's row and handle are as before."""
        tokens, pages = self._request(name)
        before = list(pages)
        self.share(name)
        whole = len(tokens) // self.page_size
        again = [a for a, b in zip(before, pages[:whole], strict=False) if a != b]
        return {"duplicates": again, "tail": pages[whole:]}

    def end(self, name):
        duplicates, tail = self._insert(name)
        self.allocator.free(duplicates + tail)
        del self.requests[name]
        return {"duplicates": duplicates, "tail": tail}

    def state(self):
        return {
            "in use": in_use(self.allocator),
            "cached": sorted((list(k), page) for k, page in self.cached.items()),
            "requests": sorted((n, t, p) for n, (t, p) in self.requests.items()),
        }

    def _request(self, name):
        if name not in self.requests:
            raise NotApplicable(f"{name} is not running")
        return self.requests[name]

    def _insert(self, name):
        tokens, pages = self._request(name)
        duplicates = []
        whole = len(tokens) // self.page_size
        for i in range(whole):
            prefix = tuple(tokens[: (i + 1) * self.page_size])
            page = self.cached.setdefault(prefix, pages[i])
            if page != pages[i]:
                duplicates.append(pages[i])
                pages[i] = page
        return duplicates, pages[whole:]


class Engine:
    """The same with the answer: it says which pages are freed."""

    def __init__(self, answer, page_size, num_pages):
        self.page_size = page_size
        self.allocator = PageAllocator(num_pages)
        self.tables = Tables()
        self.cached = {}
        self.requests = {}
        self.manager = answer.CacheManager(page_size, self.tables, self)

    def begin(self, name, tokens):
        handle = self._match(tokens[:-1])
        req = SimpleNamespace(
            input_ids=array("i"), cached_len=0, table_idx=name, cache_handle=handle
        )
        self.requests[name] = req
        self.tables.rows[name] = handle.matched_slots()
        self.grow(name, tokens)

    def grow(self, name, tokens):
        req, row = self.requests[name], self.tables.rows[name]
        del req.input_ids[req.cached_len :]
        req.input_ids.extend(tokens)
        req.cached_len = len(req.input_ids)
        total = num_pages_for(req.cached_len, self.page_size)
        pages = self.allocator.allocate(total - len(row) // self.page_size)
        row.extend(slots_of_pages(pages, self.page_size))
        req.input_ids.append(99)  # sampled, not computed

    def share(self, name):
        insertion = self.manager._insert(self.requests[name])
        self._point_at_cache(name, insertion)
        return {"duplicates": insertion.duplicates, "tail": insertion.tail}

    def share_twice(self, name):
        first = self.manager._insert(self.requests[name])
        again = self.manager._insert(self.requests[name])
        self._point_at_cache(name, first)
        return {"duplicates": again.duplicates, "tail": again.tail}

    def end(self, name):
        insertion = self.manager._insert(self.requests.pop(name))
        self.allocator.free(insertion.duplicates + insertion.tail)
        return {"duplicates": insertion.duplicates, "tail": insertion.tail}

    def state(self):
        running = []
        for name, req in self.requests.items():
            slots = self.tables.rows[name][:: self.page_size]
            pages = [slot // self.page_size for slot in slots]
            running.append((name, list(req.input_ids[: req.cached_len]), pages))
        return {
            "in use": in_use(self.allocator),
            "cached": sorted((list(k), page) for k, page in self.cached.items()),
            "requests": sorted(running),
        }

    def insert_prefix(self, tokens, slots):
        """As the prefix cache: takes over the pages of whole prefixes it lacks."""
        known = self._match(tokens).cached_len
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            page = slots[end - self.page_size] // self.page_size
            self.cached.setdefault(tuple(tokens[:end]), page)
        return SimpleNamespace(cached_len=known, handle=self._match(tokens))

    def _match(self, tokens):
        pages = []
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            if tuple(tokens[:end]) not in self.cached:
                break
            pages.append(self.cached[tuple(tokens[:end])])
        return Handle(pages, self.page_size)

    def _point_at_cache(self, name, insertion):
        req, row = self.requests[name], self.tables.rows[name]
        slots = insertion.handle.matched_slots()
        row[: len(slots)] = slots
        req.cache_handle = insertion.handle
        self.allocator.free(insertion.duplicates)


def draw(world):
    """Who holds which pages, and the pages whose book is wrong."""
    state = world.state()
    in_use, held = set(state["in use"]), set()
    rows = []
    for name, tokens, pages in state["requests"]:
        rows.append((f"request {name}", pages, tokens))
        held.update(pages)
    for tokens, page in state["cached"]:
        rows.append(("the cache", [page], tokens))
        held.add(page)
    if in_use - held:
        rows.append(("nobody, and not free", sorted(in_use - held), ""))
    if held - in_use:
        rows.append(("free, and read above", sorted(held - in_use), ""))
    return draw_table(("who", "pages", "for tokens"), rows)


def random_life(seed, page_size):
    """Requests that share prefixes, in an order that makes duplicates."""
    rng = random.Random(seed)
    operations, running, spare = [], [], list("ABCDEFGH")
    for _ in range(40):
        choice = rng.random()
        if (choice < 0.35 and spare) or not running:
            if not spare:
                break
            name = spare.pop(0)
            running.append(name)
            tokens = rng.choices((1, 2), k=rng.randrange(1, 4 * page_size + 2))
            operations.append(("begin", name, tokens))
        elif choice < 0.55:
            tokens = rng.choices((1, 2), k=rng.randrange(1, page_size + 2))
            operations.append(("grow", rng.choice(running), tokens))
        elif choice < 0.75:
            operations.append(("share", rng.choice(running)))
        elif choice < 0.85:
            operations.append(("share_twice", rng.choice(running)))
        else:
            name = running.pop(rng.randrange(len(running)))
            operations.append(("end", name))
    return operations


@test("requests that begin together, share and end")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_life(seed, page_size),
                expected=lambda size=page_size: Model(size, 200),
                actual=lambda size=page_size: Engine(answer, size, 200),
                look="every page in one place: " + IDENTITY,
                draw=draw,
            )
