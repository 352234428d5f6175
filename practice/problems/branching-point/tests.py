"""Prompts are texts, a token a letter; the model remembers every prefix of them."""

from __future__ import annotations

import random
from array import array
from types import SimpleNamespace

from grading import Check, NotApplicable, draw_table, draw_tree, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)
from minisgl.kvcache.unified.params import MatchResult

MAMBA = ComponentType.MAMBA
SYSTEM = "You are a pirate. "  # 18 letters


class States:
    """As many slots as are asked for; a state is the text that it stands for."""

    def __init__(self) -> None:
        self.content: dict[int, str] = {}

    def allocate(self, text: str = "") -> int:
        slot = len(self.content)
        self.content[slot] = text
        return slot

    def free(self, slot: int) -> None:
        self.content[slot] = ""

    def copy(self, source: int, target: int) -> None:
        self.content[target] = self.content[source]


class World:
    """A tree with states; only the component is graded."""

    def __init__(self, answer, grid: int | None = None, page_size: int = 1) -> None:
        self.page_size = page_size
        self.pool = States()
        self.component = answer.MambaComponent(self.pool, grid)
        self.cache = UnifiedRadixCache(
            page_size, [FullComponent(lambda slots: None), self.component]
        )
        self.next_slot = 0

    # operations

    def insert(self, text: str, state: bool = True) -> None:
        """Leave the tokens of a text in the tree, and the state after them."""
        num_slots = -(-len(text) // self.page_size) * self.page_size
        slots = array("i", range(self.next_slot, self.next_slot + num_slots))
        self.next_slot += num_slots
        params = InsertParams(_key(text), slots)
        if state:
            params.mamba_value = array("i", [self.pool.allocate(text)])
        self.cache.insert(params)

    def look_up(self, text: str, req=None) -> tuple:
        """(cached_len, full_hit_len, mamba_branching_seqlen) of a match."""
        match = self.cache.match_prefix(MatchPrefixParams(_key(text), req))
        return match.cached_len, match.full_hit_len, match.mamba_branching_seqlen

    def serve(self, text: str) -> tuple:
        """A request comes, leaves a checkpoint where one would help, and ends."""
        found = self.look_up(text)
        if type(found[2]) is int and found[2] <= len(text):
            self.insert(text[: found[2]])
        self.insert(text)
        return found

    def lose(self, text: str) -> None:
        """Evict the state after a text."""
        for path, node in self._nodes():
            if path == text and node.value(MAMBA) is not None:
                self.component.evict_component(node)

    # views

    def state(self) -> dict[str, list[str]]:
        """What is in the tree: the longest texts, and those with a state."""
        nodes = list(self._nodes())
        return {
            "texts": sorted(path for path, node in nodes if not node.children),
            "states": sorted(path for path, node in nodes if node.value(MAMBA)),
        }

    def _nodes(self):
        paths = {self.cache.root_node: ""}
        for node in self.cache.nodes():
            letters = array("i", node.key)
            paths[node] = paths[node.parent] + "".join(map(chr, letters))
            yield paths[node], node


def _key(text: str) -> RadixKey:
    return RadixKey([ord(letter) for letter in text])


class Model:
    """All texts whose KV is kept, prefix by prefix, and those with a state."""

    def __init__(self, grid: int | None = None, page_size: int = 1) -> None:
        self.grid = grid or page_size
        self.page_size = page_size
        self.kept: set[str] = set()
        self.states: set[str] = set()

    def insert(self, text: str, state: bool = True) -> None:
        self.kept.update(self._prefixes(text))
        if state and text in self.kept:
            self.states.add(text)

    def look_up(self, text: str) -> tuple:
        prefixes = self._prefixes(text)
        full_len = max((len(p) for p in prefixes if p in self.kept), default=0)
        cached_len = max((len(p) for p in prefixes if p in self.states), default=0)
        points = [n for n in range(cached_len + 1, full_len + 1) if n % self.grid == 0]
        return cached_len, full_len, max(points, default=None)

    def serve(self, text: str) -> tuple:
        found = self.look_up(text)
        if found[2] is not None:
            self.insert(text[: found[2]])
        self.insert(text)
        return found

    def lose(self, text: str) -> None:
        if text not in self.states:
            raise NotApplicable
        self.states.remove(text)

    def _prefixes(self, text: str) -> list[str]:
        """Those of whole pages."""
        ends = range(self.page_size, len(text) + 1, self.page_size)
        return [text[:end] for end in ends]

    def state(self) -> dict[str, list[str]]:
        inner = {prefix[: -self.page_size] for prefix in self.kept}
        return {
            "texts": sorted(self.kept - inner),
            "states": sorted(self.states),
        }


def draw(world) -> str:
    """The texts as a tree, cut where there is a state."""
    state = world.state()
    ends = {"", *state["texts"], *state["states"]}

    def parent(text):
        return max((e for e in ends if e != text and text.startswith(e)), key=len)

    def label(text):
        if not text:
            return "root"
        mark = f"  state after {len(text)}" if text in state["states"] else ""
        return f"{text[len(parent(text)) :]!r}{mark}"

    return draw_tree(
        "", lambda text: sorted(e for e in ends if e and parent(e) == text), label
    )


def draw_lengths(found: tuple, grid: int) -> str:
    """The three lengths as bars, under a ruler with the points of the grid."""
    names = "cached_len", "full_hit_len", "mamba_branching_seqlen"
    lengths = [min(length, 60) if type(length) is int else 0 for length in found]
    ruler = ("·" * (grid - 1) + "|") * (max(lengths) // grid + 1)
    rows = [["checkpoint_grid", ruler, grid]]
    for name, length, shown in zip(names, lengths, found, strict=True):
        rows.append([name, "━" * length, shown])
    return draw_table(["", "from the first token on", ""], rows)


def check_point(check: Check, found: tuple, expected: tuple, grid: int, call: str):
    """Compare (cached_len, full_hit_len, mamba_branching_seqlen)."""
    cached_len, full_len, point = found
    look = "the longest of the lengths that would help, or None"
    if type(point) is int and point != expected[2]:
        if point > full_len:
            look = "nobody shares what lies behind `full_hit_len`: round down"
        elif point <= cached_len:
            look = "a state there helps nobody: a longer prefix can be reused already"
        elif point % grid and point != full_len:
            look = "the grid is counted from the first token of the prompt"
        elif point % grid:
            look = "a forward hands out a state only at multiples of `checkpoint_grid`"
    check.equal(
        found,
        expected,
        call=f"{call}: (cached_len, full_hit_len, mamba_branching_seqlen)",
        look=look,
        draw=lambda lengths: draw_lengths(lengths, grid),
    )


@test("the third chat learns where to leave a state", example=True)
def _(answer, check: Check):
    world = World(answer, grid=4)
    world.insert(SYSTEM + "Hello, who are you?")
    world.insert(SYSTEM + "Where is the treasure?")
    call = "grid 4, two chats with the same 18 tokens in front; match a third one"
    found = world.look_up(SYSTEM + "Do you have a parrot?")
    check_point(check, found, (0, 18, 16), 4, call)
    found = world.serve(SYSTEM + "Do you have a parrot?")
    check_point(check, found, (0, 18, 16), 4, call)
    check_point(
        check,
        world.look_up(SYSTEM + "Sing us a song!"),
        (16, 18, None),
        4,
        f"{call}, which leaves a state there; match a fourth one",
    )


@test("states after 20 and 50 tokens", example=True)
def _(answer, check: Check):
    world = World(answer, grid=4)
    for length in 20, 50:
        world.insert("x" * length)
    for length, expected in (
        (10, (0, 10, 8)),
        (20, (20, 20, None)),
        (30, (20, 30, 28)),
        (50, (50, 50, None)),
    ):
        call = f"grid 4, states after 20 and 50 tokens; match {length} of them"
        check_point(check, world.look_up("x" * length), expected, 4, call)
    world.lose("x" * 20)
    for length, expected in ((20, (0, 20, 20)), (30, (0, 30, 28)), (3, (0, 3, None))):
        call = f"grid 4, a state after 50 tokens only; match {length} of them"
        check_point(check, world.look_up("x" * length), expected, 4, call)


@test("a checkpoint must be worth it")
def _(answer, check: Check):
    world = World(answer, grid=4)
    for length in 22, 40:
        world.insert("x" * length)
    for length, expected in (
        (27, (22, 27, 24)),
        (39, (22, 39, 36)),
        (24, (22, 24, 24)),
        (23, (22, 23, None)),
        (22, (22, 22, None)),
    ):
        call = f"grid 4, states after 22 and 40 tokens; match {length} of them"
        check_point(check, world.look_up("x" * length), expected, 4, call)


@test("pages and grid differ")
def _(answer, check: Check):
    for page_size, grid, expected in (
        (1, 1, (0, 23, 23)),
        (4, None, (0, 20, 20)),
        (4, 4, (0, 20, 20)),
        (4, 8, (0, 20, 16)),
        (2, 8, (0, 22, 16)),
        (1, 24, (0, 23, None)),
    ):
        world = World(answer, grid, page_size)
        world.insert("x" * 32)
        call = f"page size {page_size}, checkpoint_grid "
        call += f"{grid}, a state after 32 tokens; match 23 of them"
        check_point(
            check,
            world.look_up("x" * 23),
            expected,
            world.component.checkpoint_grid,
            call,
        )


@test("all lengths")
def _(answer, check: Check):
    for grid in 1, 3, 4:
        component = World(answer, grid).component
        for full_len in range(10):
            for cached_len in range(full_len + 1):
                has_more = full_len > cached_len
                preset = full_len if has_more else None
                result = MatchResult(cached_len, None, full_len, preset, [])
                component.finalize_match_result(result, MatchPrefixParams(_key("")))
                helpful = range(cached_len + 1, full_len + 1)
                best = max((n for n in helpful if n % grid == 0), default=None)
                check_point(
                    check,
                    (
                        result.cached_len,
                        result.full_hit_len,
                        result.mamba_branching_seqlen,
                    ),
                    (cached_len, full_len, best),
                    grid,
                    f"grid {grid}, cached_len {cached_len}, full_hit_len {full_len}",
                )


@test("the request gets its copy")
def _(answer, check: Check):
    world = World(answer, grid=4)
    for length in 20, 50:
        world.insert("x" * length)
    for length, expected in (30, ("x" * 20, 20)), (50, ("x" * 50, 50)), (10, None):
        req = SimpleNamespace(mamba_pool_idx=None, mamba_seqlen=0)
        world.look_up("x" * length, req)
        own = None
        if req.mamba_pool_idx is not None:
            own = (world.pool.content[req.mamba_pool_idx], req.mamba_seqlen)
        check.equal(
            own,
            expected,
            call=f"states after 20 and 50 tokens; match {length} of them for a "
            "request: what its state stands for, and mamba_seqlen",
            look="a request that reuses tokens works on a copy of the state after "
            "them, `self._copy_on_write(…)`; one that reuses none gets none",
        )


@test("agrees with a list of prefixes over many operations")
def _(answer, check: Check):
    for seed, (grid, page_size) in enumerate(
        [(4, 1), (3, 1), (4, 2), (6, 2), (None, 2), (8, 4)]
    ):
        check.operations(
            _operations(random.Random(seed), 40),
            expected=lambda grid=grid, page_size=page_size: Model(grid, page_size),
            actual=lambda grid=grid, page_size=page_size: World(
                answer, grid, page_size
            ),
            look="(cached_len, full_hit_len, mamba_branching_seqlen), with "
            f"checkpoint_grid {grid or page_size} and page size {page_size}",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, texts = [], [""]
    while len(operations) < count:
        kind = rng.choice(["insert", "look_up", "serve", "lose"])
        old = rng.choice(texts)
        if kind == "lose":
            operations.append(("lose", old))
            continue
        kept = old[: rng.randrange(len(old) + 1)]
        text = kept + rng.choice("abc") * rng.randrange(1, 12)
        text = text[:24]
        operations.append((kind, text))
        if kind == "insert":
            operations[-1] += (rng.random() < 0.5,)
        if kind != "look_up":
            texts.append(text)
    return operations
