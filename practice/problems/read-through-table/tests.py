"""A flat pool: single slots, scattered rows, and requests that come and go."""

import random

from grading import NotApplicable, draw_table, test

PLACE = "slot s begins at number s * width of the buffer, and has width numbers"
SCATTER = "neighbours in a request need not be neighbours in the pool: ask the row"
BEHIND = "what stands behind `length` in the row is left from others: read no further"
ORDER = "the order is that of the positions, whatever the order of their slots"


def numbered(count):
    return [float(i) for i in range(count)]


@test("a vector goes to its slot", example=True)
def _(answer, check):
    buffer = [0.0] * 24
    answer.store_kv(buffer, 2, [[0.5, 1.5]], [8])
    check.equal(
        buffer,
        [0.0] * 16 + [0.5, 1.5] + [0.0] * 6,
        call="buffer = [0.0] * 24; store_kv(buffer, 2, [[0.5, 1.5]], [8]); buffer",
        look=PLACE,
    )


@test("a request on the pages 2 and 3", example=True)
def _(answer, check):
    check.equal(
        answer.gather_kv(numbered(16), 2, [4, 5, 6, 7], 3),
        [[8.0, 9.0], [10.0, 11.0], [12.0, 13.0]],
        call="gather_kv([0.0, 1.0, …, 15.0], 2, [4, 5, 6, 7], 3)",
        look=BEHIND,
    )


@test("pages far apart, the later one first", example=True)
def _(answer, check):
    row = [20, 21, 22, 23, 8, 9, 10, 11]
    vectors = answer.gather_kv(numbered(48), 2, row, 5)
    call = f"gather_kv([0.0, 1.0, …, 47.0], 2, {row}, 5)"
    expected = [[40.0, 41.0], [42.0, 43.0], [44.0, 45.0], [46.0, 47.0], [16.0, 17.0]]
    check.equal(vectors[:1], expected[:1], call=f"{call}[:1]", look=ORDER)
    check.equal(vectors, expected, call=call, look=SCATTER)


@test("several vectors go to scattered slots, and nothing else is touched")
def _(answer, check):
    buffer = numbered(15)
    vectors = [[0.25, 0.5, 0.75], [1.25, 1.5, 1.75], [2.25, 2.5, 2.75]]
    result = answer.store_kv(buffer, 3, vectors, [4, 0, 2])
    call = f"buffer = [0.0, 1.0, …, 14.0]; store_kv(buffer, 3, {vectors}, [4, 0, 2])"
    check.equal(
        buffer,
        [
            *[1.25, 1.5, 1.75],
            *[3.0, 4.0, 5.0],
            *[2.25, 2.5, 2.75],
            *[9.0, 10.0, 11.0],
            *[0.25, 0.5, 0.75],
        ],
        call=f"{call}; buffer",
        look="vector i goes to slot out_loc[i]; the other slots stay as they were",
    )
    check.equal(result, None, call=call, look="it changes the buffer in place")


@test("no vectors are no error")
def _(answer, check):
    buffer = numbered(6)
    answer.store_kv(buffer, 2, [], [])
    check.equal(
        buffer,
        numbered(6),
        call="buffer = [0.0, …, 5.0]; store_kv(buffer, 2, [], []); buffer",
        look="nothing is to be written",
    )
    check.equal(
        answer.gather_kv(buffer, 2, [2, 1, 0], 0),
        [],
        call="gather_kv([0.0, …, 5.0], 2, [2, 1, 0], 0)",
        look=BEHIND,
    )


@test("with a width of 1, each slot is one number, and each vector still a list")
def _(answer, check):
    check.equal(
        answer.gather_kv(numbered(6), 1, [5, 0, 3], 3),
        [[5.0], [0.0], [3.0]],
        call="gather_kv([0.0, …, 5.0], 1, [5, 0, 3], 3)",
        look=ORDER,
    )


@test("what comes back is a copy, and the row stays as it was")
def _(answer, check):
    buffer, row = numbered(8), [3, 1, 2]
    vectors = answer.gather_kv(buffer, 2, row, 2)
    vectors[0][0] = -1.0
    check.equal(
        buffer,
        numbered(8),
        call="vectors = gather_kv(buffer, 2, [3, 1, 2], 2); vectors[0][0] = -1.0; "
        "buffer",
        look="a slice of a list is a copy; to change it changes nothing in the pool",
    )
    check.equal(
        row,
        [3, 1, 2],
        call="row = [3, 1, 2]; gather_kv(buffer, 2, row, 2); row",
        look="the row is the request's: only read it",
    )


NAMES = ("A", "B", "C")
NUM_PAGES, PAGE_SIZE, WIDTH, COLUMNS = 7, 2, 2, 8


class Model:
    """Each request remembers its own vectors; there is no pool at all."""

    def __init__(self):
        self.vectors = {name: [] for name in NAMES}
        self.written = 0

    def write(self, name, count):
        lens = {who: len(vectors) for who, vectors in self.vectors.items()}
        lens[name] += count
        pages = sum(-(-length // PAGE_SIZE) for length in lens.values())
        if pages > NUM_PAGES or lens[name] > COLUMNS:
            raise NotApplicable
        for _ in range(count):
            self.vectors[name].append([self.written + 0.0, self.written + 0.5])
            self.written += 1

    def end(self, name):
        self.vectors[name] = []

    def read(self, name):
        return self.vectors[name]

    def state(self):
        return {name: self.read(name) for name in NAMES}


class Real:
    """The same requests in one pool; the answer writes it and reads it."""

    def __init__(self, answer):
        self.answer = answer
        self.buffer = [-1.0] * NUM_PAGES * PAGE_SIZE * WIDTH
        self.free = list(range(NUM_PAGES))
        self.rows = {name: [0] * COLUMNS for name in NAMES}
        self.lens = dict.fromkeys(NAMES, 0)
        self.written = 0

    def write(self, name, count):
        row, start = self.rows[name], self.lens[name]
        for position in range(start, start + count):
            if position % PAGE_SIZE == 0:
                page = self.free.pop(0)
                first = page * PAGE_SIZE
                row[position : position + PAGE_SIZE] = [first, first + 1]
        end = start + count
        vectors = [
            [number + 0.0, number + 0.5]
            for number in range(self.written, self.written + count)
        ]
        self.answer.store_kv(self.buffer, WIDTH, vectors, row[start:end])
        self.lens[name], self.written = end, self.written + count

    def end(self, name):
        held = self.rows[name][: self.lens[name]]
        self.free = [slot // PAGE_SIZE for slot in held[::PAGE_SIZE]] + self.free
        self.lens[name] = 0

    def read(self, name):
        row, length = list(self.rows[name]), self.lens[name]
        return self.answer.gather_kv(self.buffer, WIDTH, row, length)

    def state(self):
        return {name: self.read(name) for name in NAMES}


def draw(world):
    """What each request reads, and in the real world also from which slots."""
    rows = []
    for name, vectors in world.state().items():
        reads = " ".join(",".join(map(str, vector)) for vector in vectors)
        slots = world.rows[name][: world.lens[name]] if hasattr(world, "rows") else []
        rows.append([name, len(vectors), reads, " ".join(map(str, slots))])
    return draw_table(["request", "tokens", "reads", "its row"], rows)


@test("requests come and go on the same pages, and each reads its own")
def _(answer, check):
    for seed in range(5):
        rng = random.Random(seed)
        operations = []
        for _ in range(40):
            name = rng.choice(NAMES)
            if rng.random() < 0.7:
                operations.append(("write", name, rng.randint(1, 3)))
            else:
                operations.append(("end", name))
        check.operations(
            operations,
            expected=Model,
            actual=lambda: Real(answer),
            look="every request reads its own tokens, position by position; compare "
            "what it reads with its row",
            draw=draw,
        )
