"""A tree and a pool of states, against a model that knows lengths only."""

from __future__ import annotations

import random
from array import array
from types import SimpleNamespace

from grading import Check, NotApplicable, draw_table, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)

MAMBA = ComponentType.MAMBA


class Pool:
    """Slots whose states are texts. A free slot holds whatever was in it last."""

    def __init__(self, num_slots: int) -> None:
        self.free_slots = list(range(num_slots))
        self.content = ["nothing"] * num_slots
        self.faults: list[str] = []

    def allocate(self) -> int | None:
        return self.free_slots.pop(0) if self.free_slots else None

    def free(self, slot: int) -> None:
        if slot in self.free_slots:
            self.faults.append(f"state {slot} freed twice")
        self.free_slots.append(slot)

    def copy(self, source: int, target: int) -> None:
        if source in self.free_slots or source == target:
            self.faults.append(f"state {source}, which is not the tree's, was copied")
        self.content[target] = self.content[source]


class World:
    """Prompts x, y, … share nothing; one of n tokens is the first n of its name."""

    def __init__(self, answer, num_slots: int) -> None:
        self.pool = Pool(num_slots)
        self.component = answer.MambaComponent(self.pool)
        self.cache = UnifiedRadixCache(
            1, [FullComponent(lambda slots: None), self.component]
        )
        self.reqs, self.pins, self.next_slot = {}, {}, 0

    # operations

    def insert(self, name: str, length: int) -> bool:
        """A request leaves its tokens, and the state after them if it got a slot."""
        slot = self.component.allocate_state()
        slots = array("i", range(self.next_slot, self.next_slot + length))
        self.next_slot += length
        params = InsertParams(_key(name, length), slots)
        if slot is not None:
            self.pool.content[slot] = f"{name}{length}"
            params.mamba_value = array("i", [slot])
        if self.cache.insert(params).mamba_exist:
            self.pool.free(slot)
        return slot is not None

    def match(self, req_name: str, name: str, length: int) -> int:
        """A request comes, perhaps again; how many tokens does it reuse?"""
        req = self.reqs.setdefault(
            req_name, SimpleNamespace(mamba_pool_idx=None, mamba_seqlen=0)
        )
        params = MatchPrefixParams(_key(name, length), req)
        return self.cache.match_prefix(params).cached_len

    def compute(self, req_name: str) -> None:
        """The request's forward writes to its state."""
        self.pool.content[self.reqs[req_name].mamba_pool_idx] = f"of {req_name}"

    def finish(self, req_name: str) -> None:
        slot = self.reqs.pop(req_name).mamba_pool_idx
        if slot is not None:
            self.pool.free(slot)

    def pin(self, pin_name: str, name: str, length: int) -> int:
        """Lock what a match finds."""
        match = self.cache.match_prefix(MatchPrefixParams(_key(name, length)))
        self.pins[pin_name] = self.cache.inc_lock_ref(match.last_device_node)
        return match.cached_len

    def unpin(self, pin_name: str) -> None:
        receipt = self.pins.pop(pin_name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    # views

    def slots(self) -> list[tuple[int, str, str]]:
        """For each slot who owns it, and its state; a free one has any old state."""
        owners = {slot: [] for slot in range(len(self.pool.content))}
        for slot in self.pool.free_slots:
            owners[slot].append("free")
        for name, end, node in self._nodes():
            for slot in node.value(MAMBA) or ():
                owners[slot].append(f"tree, {name}{end}")
        for name, req in self.reqs.items():
            if req.mamba_pool_idx is not None:
                owners[req.mamba_pool_idx].append(f"request {name}")
        return [
            (slot, " and ".join(who) or "nobody", "" if who == ["free"] else state)
            for (slot, who), state in zip(
                owners.items(), self.pool.content, strict=True
            )
        ]

    def tree(self) -> dict[str, str]:
        """By prefix, x20 for 20 tokens of x: the state that the tree has for it."""
        return {
            f"{name}{end}": self.pool.content[node.value(MAMBA)[0]]
            for name, end, node in self._nodes()
            if node.value(MAMBA) is not None
        }

    def lengths(self) -> dict[str, int]:
        """How many tokens of each prompt are in the tree."""
        lengths = {}
        for name, end, _ in self._nodes():
            lengths[name] = max(end, lengths.get(name, 0))
        return lengths

    def requests(self) -> dict[str, tuple | None]:
        """By request: the state in its slot, and the tokens it stands for."""
        return {
            name: None
            if req.mamba_pool_idx is None
            else (self.pool.content[req.mamba_pool_idx], req.mamba_seqlen)
            for name, req in self.reqs.items()
        }

    def sizes(self) -> tuple[int, int]:
        return self.component.evictable_size, self.component.protected_size

    def state(self):
        return {
            "tree": self.tree(),
            "tokens": self.lengths(),
            "requests": self.requests(),
            "free": len(self.pool.free_slots),
            "sizes": self.sizes(),
            "faults": self.pool.faults,
        }

    def _nodes(self):
        ends = {self.cache.root_node: 0}
        for node in self.cache.nodes():
            ends[node] = end = ends[node.parent] + len(node)
            top = node
            while top.parent is not self.cache.root_node:
                top = top.parent
            first = int.from_bytes(top.key[:4], "little")
            yield "xyz"[first // 1000], end, node


def _key(name: str, length: int) -> RadixKey:
    first = 1000 * "xyz".index(name)
    return RadixKey(range(first, first + length))


class Model:
    """Per prompt its tokens and node ends; all states, from oldest to newest use."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.ends: dict[str, set[int]] = {name: {0} for name in "xyz"}
        self.states: list[tuple[str, int]] = []
        self.reqs: dict[str, tuple | None] = {}
        self.pins: dict[str, tuple[str, int]] = {}

    def insert(self, name: str, length: int) -> bool:
        has_slot = self._make_room()
        self.ends[name].add(length)
        if (name, length) in self.states or has_slot:
            self._use(name, length)
        return has_slot

    def match(self, req_name: str, name: str, length: int) -> int:
        cached_len = self._find(name, length)
        req = self.reqs.setdefault(req_name, None)
        if cached_len and (req or self._make_room((name, cached_len))):
            self.reqs[req_name] = (f"{name}{cached_len}", cached_len)
        return cached_len

    def compute(self, req_name: str) -> None:
        if not self.reqs.get(req_name):
            raise NotApplicable
        self.reqs[req_name] = (f"of {req_name}", self.reqs[req_name][1])

    def finish(self, req_name: str) -> None:
        if req_name not in self.reqs:
            raise NotApplicable
        del self.reqs[req_name]

    def pin(self, pin_name: str, name: str, length: int) -> int:
        if pin_name in self.pins:
            raise NotApplicable
        cached_len = self._find(name, length)
        self.pins[pin_name] = (name, cached_len)
        return cached_len

    def unpin(self, pin_name: str) -> None:
        if pin_name not in self.pins:
            raise NotApplicable
        del self.pins[pin_name]

    def _find(self, name: str, length: int) -> int:
        self.ends[name].add(min(length, max(self.ends[name])))
        found = [end for one, end in self.states if one == name and end <= length]
        if not found:
            return 0
        self._use(name, max(found))
        return max(found)

    def _use(self, name: str, length: int) -> None:
        self.states = [one for one in self.states if one != (name, length)]
        self.states.append((name, length))

    def _num_free(self) -> int:
        num_own = sum(req is not None for req in self.reqs.values())
        return self.num_slots - len(self.states) - num_own

    def _make_room(self, *needed: tuple[str, int]) -> bool:
        if self._num_free():
            return True
        for state in self.states:
            if state not in needed and state not in self.pins.values():
                self.states.remove(state)
                name, length = state
                if length == max(self.ends[name]):  # a leaf goes with its tokens
                    self.ends[name].remove(length)
                return True
        return False

    def state(self):
        locked = set(self.pins.values()) & set(self.states)
        return {
            "tree": {f"{name}{end}": f"{name}{end}" for name, end in self.states},
            "tokens": {
                name: max(ends) for name, ends in self.ends.items() if max(ends)
            },
            "requests": dict(self.reqs),
            "free": self._num_free(),
            "sizes": (len(self.states) - len(locked), len(locked)),
            "faults": [],
        }


def draw_slots(slots) -> str:
    return draw_table(["slot", "owner", "state"], slots)


def draw(world) -> str:
    state = world.state()
    rows = [
        *((f"tree, {prefix}", text) for prefix, text in sorted(state["tree"].items())),
        *(
            (f"request {name}", "no slot" if req is None else f"{req[0]}, at {req[1]}")
            for name, req in sorted(state["requests"].items())
        ),
        *(("free", "") for _ in range(state["free"])),
    ]
    return draw_table(["owner", "state"], rows)


def check_slots(
    check: Check, world: World, expected: list[tuple], call: str, look: str
) -> None:
    """Compare the pool, as (slot, owner, state)."""
    check.equal(world.slots(), expected, call=call, look=look, draw=draw_slots)


def cached_20(answer, num_slots: int = 3) -> World:
    world = World(answer, num_slots)
    world.insert("x", 20)
    return world


@test("a request works on a copy", example=True)
def _(answer, check: Check):
    world = cached_20(answer)
    call = "3 slots, a state for the prompt x20; request A matches x20"
    check.equal(world.match("A", "x", 20), 20, call=call, look="the state is found")
    check_slots(
        check,
        world,
        [(0, "tree, x20", "x20"), (1, "request A", "x20"), (2, "free", "")],
        call,
        "A gets a slot of its own, with a copy; its next forward would overwrite the "
        "tree's state otherwise",
    )
    check.equal(
        world.reqs["A"].mamba_seqlen,
        20,
        call=f"{call}: its mamba_seqlen",
        look="the tokens that the copy stands for",
    )
    world.compute("A")
    world.match("B", "x", 20)
    check_slots(
        check,
        world,
        [(0, "tree, x20", "x20"), (1, "request A", "of A"), (2, "request B", "x20")],
        f"{call}, and computes on; then request B matches x20",
        "each request has a slot of its own, and the tree's state never changes",
    )
    check.equal(
        world.sizes(),
        (1, 0),
        call=f"{call}; then B too: (evictable_size, protected_size)",
        look="no lock stays behind",
    )


@test("makes room by evicting another state", example=True)
def _(answer, check: Check):
    world = cached_20(answer, num_slots=2)
    world.insert("y", 5)
    call = "2 slots, with states for x20 and y5; request A matches x20"
    world.match("A", "x", 20)
    check_slots(
        check,
        world,
        [(0, "tree, x20", "x20"), (1, "request A", "x20")],
        call,
        "with no slot free, the state that was unused for longest goes",
    )
    check.equal(
        (world.sizes(), world.pool.faults),
        ((1, 0), []),
        call=f"{call}: (evictable_size, protected_size), what went wrong in the pool",
        look="no lock stays behind",
    )


@test("the state that is to be copied stays")
def _(answer, check: Check):
    for pinned in False, True:
        world = cached_20(answer, num_slots=1 + pinned)
        expected = [(0, "tree, x20", "x20")]
        call = "1 slot, with a state for x20; request A matches x20"
        if pinned:
            world.insert("y", 5)
            world.pin("P", "y", 5)
            expected.append((1, "tree, y5", "y5"))
            call = "2 slots, with states for x20 and y5, y5 locked; A matches x20"
        world.match("A", "x", 20)
        check_slots(
            check,
            world,
            expected,
            call,
            "the eviction must not take the state that is to be copied; nothing else "
            "can go, so the request has to wait",
        )
        check.equal(
            (world.lengths()["x"], world.pool.faults),
            (20, []),
            call=f"{call}: tokens of x in the tree, what went wrong in the pool",
            look="a leaf that is evicted takes its tokens along, which were just found",
        )


@test("a refusal changes nothing")
def _(answer, check: Check):
    world = cached_20(answer, num_slots=1)
    call = "1 slot, with a state for x20; a request matches x20 and is refused"
    world.match("A", "x", 20)
    req = world.reqs["A"]
    check.equal(
        (req.mamba_pool_idx, req.mamba_seqlen),
        (None, 0),
        call=f"{call}: mamba_pool_idx, mamba_seqlen",
        look="a request without a slot has no state, of whatever length",
    )
    check.equal(
        (world.sizes(), len(world.cache.receipts)),
        ((1, 0), 0),
        call=f"{call}: (evictable_size, protected_size), receipts that are out",
        look="the lock was for the time of the eviction; it is released, whether or "
        "not there was a slot",
    )
    check.equal(
        world.component.allocate_state(),
        0,
        call=f"{call}; then allocate_state()",
        look="the state for x20 can be evicted again",
    )


@test("a request that has a slot keeps it")
def _(answer, check: Check):
    world = cached_20(answer)
    world.insert("x", 30)
    world.match("A", "x", 20)
    world.compute("A")
    world.match("A", "x", 30)
    call = "3 slots, states for x20 and x30; request A matches x20, and later x30"
    check_slots(
        check,
        world,
        [(0, "tree, x20", "x20"), (1, "tree, x30", "x30"), (2, "request A", "x30")],
        call,
        "a request that has a slot keeps it, and it is filled anew: nobody would give "
        "a first one back, and nothing needs to be evicted",
    )
    check.equal(
        world.reqs["A"].mamba_seqlen,
        30,
        call=f"{call}: its mamba_seqlen",
        look="the tokens that the copy stands for now",
    )


@test("a state in front of the end of the key")
def _(answer, check: Check):
    world = cached_20(answer)
    world.insert("x", 40)
    world.match("A", "x", 25)
    check.equal(
        world.requests(),
        {"A": ("x20", 20)},
        call="states for x20 and x40; a request matches x25",
        look="the copy stands for `num_tokens`, where the match ended",
    )


@test("allocate_state")
def _(answer, check: Check):
    world = World(answer, 3)
    allocate = world.component.allocate_state
    world.insert("x", 20)
    check.equal(
        (allocate(), world.tree()),
        (1, {"x20": "x20"}),
        call="3 slots, a state for x20; allocate_state()",
        look="as long as a slot is free, nothing is evicted",
    )
    world.insert("y", 5)
    world.pin("P", "x", 20)
    check.equal(
        (allocate(), world.tree()),
        (2, {"x20": "x20"}),
        call="3 slots: x20, locked; one taken; y5. allocate_state()",
        look="y5 goes, although x20 was unused for longer: x20 is locked",
    )
    check.equal(
        (allocate(), world.tree(), world.sizes()),
        (None, {"x20": "x20"}, (0, 1)),
        call="3 slots: x20, locked, and two taken. allocate_state()",
        look="None if nothing can be evicted",
    )
    world.unpin("P")
    check.equal(
        (allocate(), world.tree(), world.lengths()),
        (0, {}, {}),
        call="the same, with x20 released. allocate_state()",
        look="now x20 can go",
    )
    world = World(answer, 3)
    for name in "xyz":
        world.insert(name, 5)
    check.equal(
        (world.component.allocate_state(), world.tree()),
        (0, {"y5": "y5", "z5": "z5"}),
        call="3 slots, states for x5, y5, z5. allocate_state()",
        look="one slot is needed, so one state goes",
    )


@test("agrees with a list of states over many operations")
def _(answer, check: Check):
    for seed in range(6):
        num_slots = 2 + seed % 3
        check.operations(
            _operations(random.Random(seed), 60),
            expected=lambda num_slots=num_slots: Model(num_slots),
            actual=lambda num_slots=num_slots: World(answer, num_slots),
            look="match(request, prompt, tokens): its copy is of the longest state in "
            f"the tree ({num_slots} slots; x20 is the state after 20 tokens of x)",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, reqs, pins = [], [], []
    for number in range(count):
        kind = rng.choice(
            ["insert", "insert", "match", "match", "compute", "finish", "pin", "unpin"]
        )
        where = rng.choice("xyz"), rng.randrange(1, 7)
        if kind == "insert":
            operations.append(("insert", *where))
        elif kind == "match":
            name = rng.choice([*reqs, f"R{number}"])
            reqs += [name] * (name not in reqs)
            operations.append(("match", name, *where))
        elif kind == "pin" and len(pins) < 2:
            pins.append(f"P{number}")
            operations.append(("pin", pins[-1], *where))
        elif kind == "unpin" and pins:
            operations.append(("unpin", pins.pop(0)))
        elif reqs and kind == "compute":
            operations.append(("compute", rng.choice(reqs)))
        elif len(reqs) > 1:
            operations.append(("finish", reqs.pop(rng.randrange(len(reqs)))))
    return operations
