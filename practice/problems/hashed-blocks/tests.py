"""Blocks by hand, with hash functions of the tests' own, and in long sequences."""

import random

from grading import NotApplicable, draw_table, test
from minisgl.errors import PoolError

CHAIN = (
    "the KV of a block depends on all that stands before it: "
    "the hash of the block before is part of what is hashed"
)
CHECK = (
    "two contents may have the same hash: keep what a block is the hash of and compare "
    "it before you trust the hash"
)
OWN_PREFIX = (
    "a free block that was just found will be held: it is no room for new blocks"
)
LAST_FIRST = (
    "a block is found only through those before it: let the last one go to the free "
    "list first, so that it is given away first"
)
GONE = "what a block held can be found no more as soon as the block is given away"
STILL_THERE = "a free block keeps what is stored in it until it is given away"
FULL = "only full blocks are stored and found"


def serve(cache, tokens, extra_key=None):
    """A request from beginning to end; the blocks it had and what was cached."""
    blocks, cached_len = cache.allocate(tokens, extra_key)
    blocks = cache.store(blocks, tokens, extra_key)
    cache.release(blocks)
    return blocks, cached_len


def allocated(cache, tokens, extra_key=None):
    """What `allocate` returns, as plain data."""
    allocation = cache.allocate(tokens, extra_key)
    return allocation.blocks, allocation.cached_len


@test("a prefix is found in full blocks", example=True)
def _(answer, check):
    cache = answer.HashedBlockCache(8, 2)
    call = "HashedBlockCache(8, 2).allocate([1, 2, 3, 4, 5])"
    got = allocated(cache, [1, 2, 3, 4, 5])
    check.equal(
        got, ([0, 1, 2], 0), call=call, look="the first blocks of the free list"
    )
    call += "; store"
    got = cache.store([0, 1, 2], [1, 2, 3, 4, 5])
    check.equal(got, [0, 1, 2], call=call, look="nobody else has the same content")
    for tokens, blocks in (
        ([1, 2, 3, 4, 5, 6], [0, 1]),
        ([1, 2, 3], [0]),
        ([1, 2, 9, 4], [0]),
        ([7, 8], []),
        ([1], []),
        ([], []),
    ):
        found = cache.match(tokens)
        check.equal(found, blocks, call=f"{call}; match({tokens})", look=FULL)


@test("a second request shares what is stored", example=True)
def _(answer, check):
    cache = answer.HashedBlockCache(8, 2)
    cache.store(cache.allocate([1, 2, 3, 4, 5]).blocks, [1, 2, 3, 4, 5])
    call = "allocate and store [1, 2, 3, 4, 5]; allocate [1, 2, 3, 4, 6, 7]"
    got = allocated(cache, [1, 2, 3, 4, 6, 7])
    look = "the blocks found come first, then new ones; 4 tokens are there already"
    check.equal(got, ([0, 1, 3], 4), call=call, look=look)
    check.equal(cache.num_free, 4, call=f"num_free after {call}", look=look)


@test("the same tokens behind another beginning are other content")
def _(answer, check):
    cache = answer.HashedBlockCache(8, 2)
    serve(cache, [1, 2, 5, 6])
    serve(cache, [3, 4])
    for tokens, blocks in (([3, 4, 5, 6], [2]), ([5, 6], []), ([1, 2, 5, 6], [0, 1])):
        call = f"store [1, 2, 5, 6] in blocks 0, 1 and [3, 4] in 2; match({tokens})"
        check.equal(cache.match(tokens), blocks, call=call, look=CHAIN)


@test("each full block is hashed with the hash before it, its tokens and extra_key")
def _(answer, check):
    hashed = []
    numbers = iter(range(101, 199))

    def record(content):
        hashed.append(content)
        return next(numbers)

    cache = answer.HashedBlockCache(8, 2, record)
    cache.store([0, 1, 2], [1, 2, 3, 4, 5], "a")
    wanted = [(None, (1, 2), "a"), (101, (3, 4), "a")]
    call = "what store([0, 1, 2], [1, 2, 3, 4, 5], 'a') hashes; the hashes are 101, 102"
    check.equal(hashed, wanted, call=call, look=CHAIN)
    hashed.clear()
    cache.match([7, 8, 9, 9], "a")
    call = "what match([7, 8, 9, 9], 'a') hashes, when [7, 8] is not stored"
    look = "behind the first block that is not stored, nothing can be found"
    check.equal(hashed, [(None, (7, 8), "a")], call=call, look=look)


@test("an extra key is a world of its own")
def _(answer, check):
    look = "the extra key is part of what is hashed and compared; None is not ''"
    keys = ("a", "b", None, "")
    for stored in keys:
        cache = answer.HashedBlockCache(8, 2)
        serve(cache, [1, 2, 3, 4], stored)
        for asked in keys:
            found = cache.match([1, 2, 3, 4], asked)
            blocks = [0, 1] if asked == stored else []
            call = f"store [1, 2, 3, 4] for {stored!r}; match it for {asked!r}"
            check.equal(found, blocks, call=call, look=look)


@test("equal hashes are not taken for equal content")
def _(answer, check):
    functions = {
        "always 7": lambda content: 7,
        "made from the tokens of the block alone": lambda content: hash(content[1]),
        "the sum of the tokens": lambda content: sum(content[1]),
        "made without the extra key": lambda content: hash(content[:2]),
    }
    for name, function in functions.items():
        cache = answer.HashedBlockCache(8, 2, function)
        serve(cache, [1, 2, 5, 6], "a")
        stored = cache.match([1, 2, 5, 6], "a")[:1]
        call = f"the hash is {name}; store [1, 2, 5, 6] for 'a'; match "
        check.equal(stored, [0], call=f"{call}it: the first block", look=FULL)
        for tokens, key in (
            ([3, 4, 5, 6], "a"),
            ([2, 1, 5, 6], "a"),
            ([5, 6], "a"),
            ([1, 2, 5, 6], "b"),
        ):
            found = cache.match(tokens, key)
            check.equal(found, [], call=f"{call}{tokens} for {key!r}", look=CHECK)
        serve(cache, [2, 1, 5, 6], "a")
        found = cache.match([1, 2, 5, 6], "a")[:1]
        call = f"the hash is {name}; store [1, 2, 5, 6], then [2, 1, 5, 6]; match "
        look = "what is stored stays stored; whoever comes later with its hash is not"
        check.equal(found, [0], call=f"{call}[1, 2, 5, 6]: the first block", look=look)


@test("behind a block that is not stored, nothing is stored")
def _(answer, check):
    cache = answer.HashedBlockCache(8, 2, lambda content: sum(content[1]))
    serve(cache, [1, 2])
    serve(cache, [2, 1, 5, 6])
    call = "the hash is the sum of the tokens; store [1, 2], then [2, 1, 5, 6]; match "
    look = (
        "[2, 1] has the hash of [1, 2] and is not stored; a block behind it would be "
        "found behind [1, 2]"
    )
    found = cache.match([1, 2, 5, 6])
    check.equal(found, [0], call=f"{call}[1, 2, 5, 6]", look=look)
    check.equal(cache.match([2, 1, 5, 6]), [], call=f"{call}[2, 1, 5, 6]", look=look)


@test("a free block keeps its content, and comes back with it")
def _(answer, check):
    cache = answer.HashedBlockCache(4, 2)
    serve(cache, [1, 2, 3, 4])
    call = "4 blocks; a request of [1, 2, 3, 4] comes and goes"
    check.equal(cache.num_free, 4, call=f"{call}; num_free", look=STILL_THERE)
    check.equal(
        cache.match([1, 2]), [0], call=f"{call}; match [1, 2]", look=STILL_THERE
    )
    call += "; allocate [1, 2, 9]"
    got = allocated(cache, [1, 2, 9])
    check.equal(got, ([0, 2], 2), call=call, look=STILL_THERE)
    check.equal(cache.num_free, 2, call=f"{call}; num_free", look=STILL_THERE)
    got = allocated(cache, [5, 6, 7, 8])
    look = "a block that is held is not in the free list, wherever it lay there"
    check.equal(got, ([3, 1], 0), call=f"{call}; allocate [5, 6, 7, 8]", look=look)


@test("a found block that is free is not counted as room")
def _(answer, check):
    cache = answer.HashedBlockCache(4, 2)
    serve(cache, [1, 2, 3, 4])
    cache.allocate([9])
    call = "4 blocks, one in use, [1, 2, 3, 4] stored in two free ones; allocate 8 "
    call += "tokens that begin with it"
    check.raises(
        PoolError, lambda: cache.allocate(list(range(1, 9))), call=call, look=OWN_PREFIX
    )
    look = "a refusal changes nothing"
    check.equal(cache.num_free, 3, call=f"num_free after: {call}", look=look)
    found = cache.match([1, 2, 3, 4])
    check.equal(found, [0, 1], call=f"match [1, 2, 3, 4] after: {call}", look=look)
    got = allocated(cache, [1, 2, 3, 4, 5, 6])
    look = "two blocks are found and one is new: there is room for that"
    check.equal(got, ([0, 1, 3], 4), call="then allocate 6 tokens", look=look)


@test("what a block held is lost when the block is given away")
def _(answer, check):
    cache = answer.HashedBlockCache(1, 2)
    serve(cache, [1, 2])
    cache.allocate([3, 4])
    call = "1 block; [1, 2] comes and goes; allocate [3, 4], not yet computed; match "
    check.equal(cache.match([1, 2]), [], call=f"{call}[1, 2]", look=GONE)
    look = "a block can be found when it is stored, not when it is allocated"
    check.equal(cache.match([3, 4]), [], call=f"{call}[3, 4]", look=look)


@test("the end of a prompt is given away before its beginning")
def _(answer, check):
    cache = answer.HashedBlockCache(3, 2)
    serve(cache, [1, 2, 3, 4, 5, 6])
    call = "3 blocks; a request of [1, 2, 3, 4, 5, 6] comes and goes; allocate [9]"
    check.equal(allocated(cache, [9]), ([2], 0), call=call, look=LAST_FIRST)
    found = cache.match([1, 2, 3, 4, 5, 6])
    call += "; match [1, 2, 3, 4, 5, 6]"
    check.equal(found, [0, 1], call=call, look=LAST_FIRST)


@test("the block that was free for longest is given away")
def _(answer, check):
    cache = answer.HashedBlockCache(3, 1)
    for token in (1, 2, 3):
        serve(cache, [token])
    serve(cache, [1])
    look = "a block that was used again goes to the end of the free list again"
    call = "3 blocks; requests of [1], [2], [3] and [1] come and go; allocate [8, 9]"
    check.equal(allocated(cache, [8, 9]), ([1, 2], 0), call=call, look=look)
    cache = answer.HashedBlockCache(3, 1)
    for token in (1, 2, 3):
        serve(cache, [token])
    cache.match([1])
    call = "3 blocks; requests of [1], [2] and [3] come and go; match [1]; allocate [9]"
    look = "a match alone changes nothing"
    check.equal(allocated(cache, [9]), ([0], 0), call=call, look=look)


@test("what several requests hold is free when the last lets go")
def _(answer, check):
    cache = answer.HashedBlockCache(2, 2)
    blocks = cache.store(cache.allocate([1, 2]).blocks, [1, 2])
    cache.allocate([1, 2])
    cache.release(blocks)
    look = "count the requests that hold a block"
    call = "two requests of [1, 2] share block 0; one lets go; num_free"
    check.equal(cache.num_free, 1, call=call, look=look)
    check.equal(allocated(cache, [9]), ([1], 0), call="then allocate [9]", look=look)
    cache.release(blocks)
    call = "the other lets go; num_free"
    check.equal(cache.num_free, 1, call=call, look=look)


@test("two requests that computed the same go on with one copy")
def _(answer, check):
    cache = answer.HashedBlockCache(6, 2)
    first, second = (cache.allocate([1, 2, 3, 4, n]).blocks for n in (5, 6))
    cache.store(first, [1, 2, 3, 4, 5])
    call = "6 blocks; allocate [1, 2, 3, 4, 5] and [1, 2, 3, 4, 6]; store both"
    look = (
        "the second goes over to the blocks that hold the content, and releases its own"
    )
    got = cache.store(second, [1, 2, 3, 4, 6])
    check.equal(got, [0, 1, 5], call=call, look=look)
    check.equal(cache.num_free, 2, call=f"{call}; num_free", look=look)
    cache.release(first)
    call += "; the first lets go"
    check.equal(cache.num_free, 3, call=f"{call}; num_free", look=look)
    cache.release(got)
    call += "; the second too"
    check.equal(cache.num_free, 6, call=f"{call}; num_free", look=look)
    again = cache.store(cache.allocate([1, 2, 3, 4]).blocks, [1, 2, 3, 4])
    look = "a block that holds the content already is no second copy"
    check.equal(again, [0, 1], call="store the same again", look=look)


@test("a block that nobody holds cannot be released")
def _(answer, check):
    cache = answer.HashedBlockCache(4, 2)
    blocks = cache.allocate([1, 2, 3]).blocks
    look = "check all of them before you change one"
    for wrong in ([0, 3], [3, 0]):
        check.raises(
            PoolError,
            lambda wrong=wrong: cache.release(wrong),
            call=f"release({wrong}) when 0 and 1 are held",
            look=look,
            mentions=("3",),
        )
        check.equal(
            cache.num_free, 2, call=f"num_free after release({wrong})", look=look
        )
    cache.release(blocks)
    check.raises(
        PoolError, lambda: cache.release(blocks), call="release twice", look=look
    )


# --- sequences ------------------------------------------------------------------------


class Model:
    """The same without hashes: what is stored is known by its whole prefix."""

    def __init__(self, num_blocks, block_size, probes):
        self.block_size = block_size
        self.free = list(range(num_blocks))
        self.held = []  # a block as often as it is held
        self.stored = {}  # extra key and tokens up to the end of a block -> block
        self.requests = {}
        self.probes = probes

    def begin(self, name, tokens, key):
        if name in self.requests:
            raise NotApplicable(f"{name} is running")
        found = self.match(tokens, key)
        total = -(-len(tokens) // self.block_size)
        if total > len(set(self.free) | set(found)):
            raise PoolError
        for block in found:
            self._hold(block)
        new = self.free[: total - len(found)]
        for block in new:
            self._hold(block)
            self.stored = {p: b for p, b in self.stored.items() if b != block}
        self.requests[name] = tokens, key, found + new
        return found + new, len(found) * self.block_size

    def computed(self, name):
        tokens, key, blocks = self._request(name)
        for i in range(len(tokens) // self.block_size):
            block = self.stored.setdefault(self._prefix(tokens, key, i), blocks[i])
            if block != blocks[i]:
                self._hold(block)
                self._let_go(blocks[i])
                blocks[i] = block
        return list(blocks)

    def end(self, name):
        for block in reversed(self._request(name)[2]):
            self._let_go(block)
        del self.requests[name]

    def match(self, tokens, key):
        blocks = []
        for i in range(len(tokens) // self.block_size):
            if self._prefix(tokens, key, i) not in self.stored:
                break
            blocks.append(self.stored[self._prefix(tokens, key, i)])
        return blocks

    def state(self):
        found = [(key, tokens, self.match(tokens, key)) for tokens, key in self.probes]
        return {"free": len(self.free), "found": [f for f in found if f[2]]}

    def _request(self, name):
        if name not in self.requests:
            raise NotApplicable(f"{name} is not running")
        return self.requests[name]

    def _prefix(self, tokens, key, i):
        return key, tuple(tokens[: (i + 1) * self.block_size])

    def _hold(self, block):
        self.held.append(block)
        if block in self.free:
            self.free.remove(block)

    def _let_go(self, block):
        self.held.remove(block)
        if block not in self.held:
            self.free.append(block)


class Engine:
    """The answer's cache and the requests that use it."""

    def __init__(self, answer, num_blocks, block_size, probes, hash_function=hash):
        self.cache = answer.HashedBlockCache(num_blocks, block_size, hash_function)
        self.requests = {}
        self.probes = probes

    def begin(self, name, tokens, key):
        blocks, cached_len = allocated(self.cache, tokens, key)
        self.requests[name] = tokens, key, list(blocks)
        return blocks, cached_len

    def computed(self, name):
        tokens, key, blocks = self.requests[name]
        blocks = self.cache.store(blocks, tokens, key)
        self.requests[name] = tokens, key, blocks
        return blocks

    def end(self, name):
        return self.cache.release(self.requests.pop(name)[2])

    def match(self, tokens, key):
        return self.cache.match(tokens, key)

    def state(self):
        found = [(key, tokens, self.match(tokens, key)) for tokens, key in self.probes]
        return {"free": self.cache.num_free, "found": [f for f in found if f[2]]}


class Contents:
    """What was computed into each block last, and who finds it under another name."""

    def __init__(self, answer, num_blocks, block_size, probes, hash_function):
        self.engine = Engine(answer, num_blocks, block_size, probes, hash_function)
        self.size = block_size
        self.contents = {}

    def do(self, operation):
        """Why an operation went wrong; "" if it did not."""
        name, *arguments = operation
        if name == "begin" and arguments[0] in self.engine.requests:
            return ""
        if name != "begin" and arguments[0] not in self.engine.requests:
            return ""
        result = getattr(self.engine, name)(*arguments)
        if name == "begin":
            self._compute(*result, *arguments[1:])
        return self._false_hit()

    def _compute(self, blocks, cached_len, tokens, key):
        for i in range(cached_len // self.size, len(blocks)):
            self.contents[blocks[i]] = key, tokens[: (i + 1) * self.size]

    def _false_hit(self):
        for tokens, key in self.engine.probes:
            for i, block in enumerate(self.engine.match(tokens, key)):
                wanted = key, tokens[: (i + 1) * self.size]
                if self.contents[block] != wanted:
                    return f"{wanted} is found in a block of {self.contents[block]}"
        return ""


def draw(world):
    """What can be found, and where."""
    state = world.state()
    rows = [(repr(key), tokens, blocks) for key, tokens, blocks in state["found"]]
    rows.append(("", "free", f"{state['free']} blocks"))
    return draw_table(("extra key", "tokens", "blocks"), rows)


def random_life(seed, block_size, names):
    """Operations on prompts that share beginnings; and the prompts, with their keys."""
    rng = random.Random(seed)
    prompts = []
    for _ in range(8):
        start = rng.choice(prompts)[0] if prompts else []
        start = start[: rng.randrange(3 * block_size)]
        new = rng.choices((1, 2, 3), k=rng.randrange(1, 2 * block_size + 1))
        prompts.append(((start + new)[: 4 * block_size], rng.choice((None, None, "a"))))
    operations = []
    for _ in range(70):
        name = rng.choice(names)
        tokens, key = rng.choice(prompts)
        life = [("begin", name, tokens, key)] * 2 + [("computed", name), ("end", name)]
        operations.append(rng.choice(life))
    return operations, prompts


@test("long sequences, against a model without hashes")
def _(answer, check):
    for block_size in (1, 2, 4):
        for seed in (1, 2, 3):
            operations, probes = random_life(seed, block_size, "ABC")
            world = (7, block_size, probes)
            check.operations(
                operations,
                expected=lambda world=world: Model(*world),
                actual=lambda world=world: Engine(answer, *world),
                look="found blocks first, then the first of the free list; "
                + LAST_FIRST,
                draw=draw,
            )


@test("long sequences with hash functions that collide")
def _(answer, check):
    functions = {
        "always 7": lambda content: 7,
        "of the tokens of the block alone": lambda content: hash(content[1]),
        "the sum of the tokens": lambda content: sum(content[1]),
    }
    for name, function in functions.items():
        for seed in (1, 2, 3):
            operations, probes = random_life(seed, 2, "ABC")
            world = Contents(answer, 12, 2, probes, function)
            for at, operation in enumerate(operations):
                fault = world.do(operation)
                call = f"the hash is {name}; after {operations[: at + 1][-5:]}"
                check.equal(fault, "", call=call, look=CHECK)
