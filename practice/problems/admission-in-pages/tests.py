"""Admission: half-empty pages, promises, refusals, and whole lives in a small pool."""

import random
from array import array

from grading import NotApplicable, draw_table, test
from minisgl.core import SamplingParams

HALF_EMPTY = "a page belongs to one request, also if it is half empty: count pages"
ANSWER = "the answer needs pages too: a request may grow to max_len"
PROMISED = "requests that run will still take pages: add num_reserved to what is needed"
HELD = "pages that a request holds already are not free any more: reserve the others"
UNCHANGED = "a refusal changes nothing: look whether it fits before you start it"
WHOLE = "only whole cached pages are shared; the tokens behind them need a page anew"


def new_pending(answer, uid, prompt_len, output_len):
    tokens = array("i", range(prompt_len))
    return answer.PendingReq(uid, tokens, output_len, SamplingParams())


def admitted(answer, manager, uid, prompt_len, output_len, max_tokens=1000):
    """Ask for admission; the request, or None."""
    pending = new_pending(answer, uid, prompt_len, output_len)
    return manager.admit(pending, uid, max_tokens)


def books(manager):
    return {
        "live": sorted(manager.live),
        "num_reserved": manager.num_reserved,
        "num_available": manager.num_available,
    }


def forward(manager, req):
    """One forward: the request gets the pages it lacks, and its lengths move on.

    Returns the pages that it got.
    """
    size = manager.page_size
    missing = -(-req.device_len // size) - -(-req.cached_len // size)
    pages = manager.allocator.allocate(missing)
    req.complete_one()
    return pages


@test("three requests of 17 tokens, and four pages of 16", example=True)
def _(answer, check):
    manager = answer.PageManager(4, 16)
    call = "PageManager(4, 16)"
    for uid, reserved in [(0, 2), (1, 4)]:
        req = admitted(answer, manager, uid, 10, 7)
        call += ", admit(10 + 7 tokens)"
        check.true(
            req is not None and req is manager.live.get(uid),
            call=call,
            expected="the request that _start made",
            actual=str(req),
            look="it needs 2 pages, and so many are free and not promised",
        )
        check.equal(
            manager.num_reserved,
            reserved,
            call=f"{call}, num_reserved",
            look=HALF_EMPTY,
        )
    req = admitted(answer, manager, 2, 10, 7)
    call += ", admit(10 + 7 tokens)"
    check.true(req is None, call=call, expected=None, actual=str(req), look=PROMISED)
    check.equal(
        books(manager),
        {"live": [0, 1], "num_reserved": 4, "num_available": 4},
        call=f"{call}; the books behind it",
        look=UNCHANGED,
    )


@test("the pages of the answer count from the beginning")
def _(answer, check):
    for prompt_len, output_len, fits in [
        (4, 4, True),
        (4, 5, False),
        (1, 8, False),
        (7, 1, True),
        (8, 1, False),
    ]:
        manager = answer.PageManager(2, 4)
        req = admitted(answer, manager, 0, prompt_len, output_len)
        check.equal(
            req is not None,
            fits,
            call=f"PageManager(2, 4), admit({prompt_len} + {output_len} tokens) is not "
            "None",
            look=ANSWER,
        )


@test("with pages of one slot, pages are tokens")
def _(answer, check):
    for num_pages, fits in [(5, True), (4, False)]:
        manager = answer.PageManager(num_pages, 1)
        req = admitted(answer, manager, 0, 3, 2)
        check.equal(
            req is not None,
            fits,
            call=f"PageManager({num_pages}, 1), admit(3 + 2 tokens) is not None",
            look="admit starts with nothing cached: 5 pages are needed",
        )


@test("a promise becomes a page as the request grows")
def _(answer, check):
    manager = answer.PageManager(4, 4)
    req = admitted(answer, manager, 0, 5, 6)
    call = "PageManager(4, 4), admit(5 + 6 tokens)"
    for reserved, available in [(1, 2), (1, 2), (1, 2), (1, 2), (0, 1), (0, 1)]:
        forward(manager, req)
        call += ", forward"
        check.equal(
            books(manager),
            {"live": [0], "num_reserved": reserved, "num_available": available},
            call=call,
            look=HELD,
        )
    check.equal(
        admitted(answer, manager, 1, 2, 2) is not None,
        True,
        call=f"{call}, admit(2 + 2 tokens) is not None",
        look=HELD,
    )


@test("a prompt longer than the limit waits, and nothing has changed")
def _(answer, check):
    for max_tokens, fits in [(5, True), (4, False)]:
        manager = answer.PageManager(8, 4)
        req = admitted(answer, manager, 3, 5, 2, max_tokens)
        call = f"PageManager(8, 4), admit(5 + 2 tokens, max_tokens={max_tokens})"
        check.equal(
            req is not None,
            fits,
            call=f"{call} is not None",
            look="the limit is on the tokens of the prompt, which are computed now",
        )
        check.equal(
            books(manager),
            {
                "live": [3] if fits else [],
                "num_reserved": 2 if fits else 0,
                "num_available": 8,
            },
            call=f"{call}; the books behind it",
            look=UNCHANGED,
        )


@test("the request is started in its row, with nothing cached")
def _(answer, check):
    manager = answer.PageManager(8, 4)
    req = manager.admit(new_pending(answer, 5, 6, 3), 2, 100)
    check.equal(
        [req.uid, req.table_idx, req.cached_len, req.device_len, req.max_device_len],
        [5, 2, 0, 6, 9],
        call="PageManager(8, 4).admit(uid 5, 6 + 3 tokens, row=2, max_tokens=100): its "
        "uid, table_idx, cached_len, device_len and max_device_len",
        look="start it with self._start(pending, row, cached_len=0, cache_handle=None)",
    )


@test("cached pages need not be found again, if they are whole")
def _(answer, check):
    manager = answer.PageManager(2, 4)
    for cached_len, fits in [(0, False), (3, False), (4, True), (7, True), (8, True)]:
        check.equal(
            manager._has_room(new_pending(answer, 0, 10, 2), cached_len),
            fits,
            call=f"PageManager(2, 4)._has_room(10 + 2 tokens, cached_len={cached_len})",
            look=WHOLE,
        )


PAGE_SIZE = 4
NUM_PAGES = 8


class Model:
    """Requests as triples of lengths; every page is counted from scratch."""

    def __init__(self):
        self.lens = {}  # uid -> cached, device, longest

    def admit(self, uid, prompt_len, output_len, max_tokens):
        if uid in self.lens or self.full(prompt_len + output_len) > NUM_PAGES:
            raise NotApplicable
        longest = prompt_len + output_len
        promised = sum(self.full(lens[2]) for lens in self.lens.values())
        if prompt_len > max_tokens or promised + self.full(longest) > NUM_PAGES:
            return False
        self.lens[uid] = (0, prompt_len, longest)
        return True

    def forward(self, uid):
        if uid not in self.lens:
            raise NotApplicable
        _, device, longest = self.lens[uid]
        if device + 1 == longest:
            del self.lens[uid]
        else:
            self.lens[uid] = (device, device + 1, longest)

    def full(self, tokens):
        return -(-tokens // PAGE_SIZE)

    def state(self):
        held = sum(self.full(lens[0]) for lens in self.lens.values())
        longest = sum(self.full(lens[2]) for lens in self.lens.values())
        return {
            "live": sorted(self.lens),
            "num_reserved": longest - held,
            "num_available": NUM_PAGES - held,
        }


class Real:
    """The same requests, admitted by the answer, on pages of a real allocator."""

    def __init__(self, answer):
        self.answer = answer
        self.manager = answer.PageManager(NUM_PAGES, PAGE_SIZE)
        self.pages = {}

    def admit(self, uid, prompt_len, output_len, max_tokens):
        req = admitted(
            self.answer, self.manager, uid, prompt_len, output_len, max_tokens
        )
        if req is not None:
            self.pages[uid] = []
        return req is not None

    def forward(self, uid):
        req = self.manager.live[uid]
        self.pages[uid] += forward(self.manager, req)
        if not req.can_decode:
            del self.manager.live[uid]
            self.manager.allocator.free(self.pages.pop(uid))

    def state(self):
        return books(self.manager)


def draw(world):
    """Who is in, how long each may get, and what it holds."""
    if isinstance(world, Model):
        lens = world.lens
    else:
        lens = {
            uid: (req.cached_len, req.device_len, req.max_device_len)
            for uid, req in world.manager.live.items()
        }
    rows = [
        [uid, cached, longest, -(-cached // PAGE_SIZE), -(-longest // PAGE_SIZE)]
        for uid, (cached, _, longest) in sorted(lens.items())
    ]
    headers = ["request", "cached_len", "at most", "its pages", "at most"]
    free = world.state()["num_available"]
    return f"{draw_table(headers, rows)}\nfree: {free} of {NUM_PAGES} pages"


@test("whole lives in a small pool: whoever came in gets to its end")
def _(answer, check):
    for seed in range(5):
        rng = random.Random(seed)
        operations = []
        for _ in range(60):
            uid = rng.randrange(6)
            if rng.random() < 0.35:
                lengths = rng.randint(1, 9), rng.randint(1, 12)
                operations.append(("admit", uid, *lengths, rng.choice([4, 8, 100])))
            else:
                operations.append(("forward", uid))
        check.operations(
            operations,
            expected=Model,
            actual=lambda: Real(answer),
            look="count each live request with the pages of its longest life, in "
            "pages of 4: together they are never more than the pool's 8",
            draw=draw,
        )
