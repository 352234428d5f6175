"""Prompts are texts, a token a letter; a state is the text that it has seen."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_tree, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    SWAComponent,
    UnifiedRadixCache,
    mamba_component,
)

MAMBA = ComponentType.MAMBA

# the engine's answer to half of `commit_insert_component_data`
if hasattr(mamba_component.MambaComponent, "_can_store"):
    del mamba_component.MambaComponent._can_store


class States:
    """Slots in order; `content` has those in use and the text that each has seen."""

    def __init__(self) -> None:
        self.num_slots = 0
        self.content: dict[int, str] = {}

    def allocate(self, text: str = "") -> int:
        slot, self.num_slots = self.num_slots, self.num_slots + 1
        self.content[slot] = text
        return slot

    def free(self, slot: int) -> None:
        del self.content[slot]


class Window:
    """A window pool in which nothing is looked at."""

    def free(self, full_slots) -> None:
        pass

    def move(self, source, target) -> None:
        pass


class World:
    """A tree with states; only the component is graded.

    The state that request number n offers after `ab` is called `ab by n`.
    """

    def __init__(self, answer, page_size: int = 1, window: int | None = None) -> None:
        self.page_size = page_size
        self.pool = States()
        self.component = answer.MambaComponent(self.pool)
        components = [FullComponent(lambda slots: None), self.component]
        if window is not None:
            components.insert(1, SWAComponent(Window(), window))
        self.cache = UnifiedRadixCache(page_size, components)
        self.receipts = {}
        self.num_inserts = self.next_slot = 0

    # operations

    def insert(self, text: str, state: bool = True, dead: int = 0) -> bool:
        """Insert a text with the state after it; was the state left to the caller?"""
        self.num_inserts += 1
        num_slots = -(-len(text) // self.page_size) * self.page_size
        slots = array("i", range(self.next_slot, self.next_slot + num_slots))
        self.next_slot += num_slots
        params = InsertParams(_key(text), slots, swa_evicted_seqlen=dead)
        if state:
            slot = self.pool.allocate(f"{text} by {self.num_inserts}")
            params.mamba_value = array("i", [slot])
        is_left = self.cache.insert(params).mamba_exist
        if state and is_left:
            self.pool.free(slot)
        return is_left

    def match(self, text: str) -> str:
        """The state that a request with this prompt would copy; "" for none."""
        node = self._match(text)
        slots = node.value(MAMBA)
        if node is self.cache.root_node:
            return ""
        return "no state" if slots is None else self._content(slots)

    def lock(self, name: str, text: str) -> None:
        """Lock what a match finds."""
        self.receipts[name] = self.cache.inc_lock_ref(self._match(text))

    def release(self, name: str) -> None:
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    # views

    def lengths(self, text: str) -> list[int]:
        """What is reused of each prefix of a text, from one token on."""
        ends = range(1, len(text) + 1)
        return [
            self.cache.match_prefix(MatchPrefixParams(_key(text[:end]))).cached_len
            for end in ends
        ]

    def nodes(self) -> dict[str, str]:
        """By prefix, what its node has in this component."""
        notes = {}
        for path, node in self._nodes():
            data, note = node.component_data[MAMBA], "no state"
            if data.value is not None:
                note = f"state of {self._content(data.value)}"
            notes[path] = note + f", locks {data.lock_ref}" * bool(data.lock_ref)
        return notes

    def states(self) -> dict[str, str]:
        """By prefix, the state that the tree has for it."""
        return {
            path: self._content(node.value(MAMBA))
            for path, node in self._nodes()
            if node.value(MAMBA) is not None
        }

    def locks(self) -> dict[str, int]:
        """By prefix, how many locks its node has in this component, if any."""
        counts = {
            path: node.component_data[MAMBA].lock_ref for path, node in self._nodes()
        }
        return {path: count for path, count in counts.items() if count}

    def sizes(self) -> tuple[int, int]:
        return self.component.evictable_size, self.component.protected_size

    def oldest_first(self) -> list[str]:
        """The prefixes of the nodes in the list."""
        paths = {node: path for path, node in self._nodes()}
        return [paths[node] for node in self.component.lru_list]

    def state(self):
        return {
            "texts": sorted(path for path, node in self._nodes() if not node.children),
            "states": self.states(),
            "locks": self.locks(),
            "sizes": self.sizes(),
            "slots in use": len(self.pool.content),
        }

    def _match(self, text: str):
        return self.cache.match_prefix(MatchPrefixParams(_key(text))).last_device_node

    def _content(self, slots) -> str:
        return " and ".join(
            self.pool.content.get(slot, "a free slot") for slot in slots
        )

    def _nodes(self):
        paths = {self.cache.root_node: ""}
        for node in self.cache.nodes():
            letters = array("i", node.key)
            paths[node] = paths[node.parent] + "".join(map(chr, letters))
            yield paths[node], node


def _key(text: str) -> RadixKey:
    return RadixKey([ord(letter) for letter in text])


class Model:
    """All prefixes of whole pages that are kept, and the states of some of them."""

    def __init__(self, page_size: int = 1) -> None:
        self.page_size = page_size
        self.kept: set[str] = set()
        self.states: dict[str, str] = {}
        self.receipts: dict[str, str] = {}
        self.num_inserts = 0

    def insert(self, text: str, state: bool = True) -> bool:
        self.num_inserts += 1
        ends = range(self.page_size, len(text) + 1, self.page_size)
        self.kept.update(text[:end] for end in ends)
        if not state:
            return False
        if text not in self.kept or text in self.states:
            return True
        self.states[text] = f"{text} by {self.num_inserts}"
        return False

    def match(self, text: str) -> str:
        return self.states.get(self._find(text), "")

    def lock(self, name: str, text: str) -> None:
        if name in self.receipts:
            raise NotApplicable
        self.receipts[name] = self._find(text)

    def release(self, name: str) -> None:
        if name not in self.receipts:
            raise NotApplicable
        del self.receipts[name]

    def _find(self, text: str) -> str:
        return max((p for p in self.states if text.startswith(p)), key=len, default="")

    def state(self):
        inner = {prefix[: -self.page_size] for prefix in self.kept}
        locked = [prefix for prefix in self.receipts.values() if prefix]
        num_locked = len(set(locked))
        return {
            "texts": sorted(self.kept - inner),
            "states": dict(self.states),
            "locks": {prefix: locked.count(prefix) for prefix in locked},
            "sizes": (len(self.states) - num_locked, num_locked),
            "slots in use": len(self.states),
        }


def draw(world) -> str:
    """The texts as a tree, cut where there is a state or a lock."""
    state = world.state()
    notes = dict.fromkeys(state["texts"], "")
    for text, seen in state["states"].items():
        notes[text] = f"state of {seen}"
    for text, count in state["locks"].items():
        notes[text] = f"{notes.get(text, '')} locks {count}"
    return draw_nodes(notes)


def draw_nodes(notes: dict[str, str]) -> str:
    """A tree of texts, each with a note."""
    ends = {"", *notes}

    def parent(text):
        return max((e for e in ends if e != text and text.startswith(e)), key=len)

    def label(text):
        if not text:
            return "root"
        return f"{text[len(parent(text)) :]!r}  {notes[text]}".rstrip()

    return draw_tree(
        "", lambda text: sorted(e for e in ends if e and parent(e) == text), label
    )


def check_nodes(
    check: Check, world: World, expected: dict[str, str], call: str, look: str
) -> None:
    """Compare the nodes, by their texts from the root on, with state and locks."""
    check.equal(world.nodes(), expected, call=call, look=look, draw=draw_nodes)


@test("a split leaves the state with the lower half", example=True)
def _(answer, check: Check):
    world = World(answer)
    world.insert("abcd")
    world.lock("A", "abcd")
    call = "insert `abcd` with a state, and lock it; then the prompt `abx` comes"
    check.equal(
        world.match("abx"),
        "",
        call=f"{call}: the state that it copies",
        look="the upper half would offer a state that has seen tokens behind its end",
    )
    upper_lock = world.locks().get("ab")
    check_nodes(
        check,
        world,
        {"ab": "no state", "abcd": "state of abcd by 1, locks 1"},
        call,
        "the release visits one node only, the lower half; a lock on the upper one "
        "would stay for ever"
        if upper_lock
        else "the state has seen four tokens, so it stays at the end of the lower "
        "half, as does its lock",
    )
    check.equal(
        world.match("abcd"),
        "abcd by 1",
        call=f"{call}; then `abcd` again",
        look="for its own length the state is as good as before",
    )
    world.release("A")
    check.equal(
        (world.locks(), world.sizes()),
        ({}, (1, 0)),
        call=f"{call}; then the lock is released: locks, (evictable_size, "
        "protected_size)",
        look="one state, and nothing locked",
    )


@test("a match ends with a state or not at all", example=True)
def _(answer, check: Check):
    world = World(answer)
    world.insert("ab")
    world.insert("abcdef")
    check.equal(
        world.lengths("abcdefgh"),
        [0, 2, 2, 2, 2, 6, 6, 6],
        call="states after `ab` and `abcdef`: tokens reused of `a`, `ab`, `abc`, …",
        look="a state is usable at one length: neither for fewer tokens nor for more",
    )
    world.insert("abcd", state=False)
    check.equal(
        world.lengths("abcdef"),
        [0, 2, 2, 2, 2, 6],
        call="the same, and `abcd` inserted without a state",
        look="tokens without a state are of no use to this model",
    )


@test("a state within a page is not stored", example=True)
def _(answer, check: Check):
    world = World(answer, page_size=4)
    is_left = world.insert("abcdefghi")
    call = "page size 4, insert `abcdefghi` with the state after it"
    check_nodes(
        check,
        world,
        {"abcdefgh": "no state"},
        call,
        "the state has seen 9 tokens, and the node ends after 8",
    )
    check.equal(
        is_left,
        True,
        call=f"{call}: mamba_exist",
        look="the tree did not take it, so the caller must free it",
    )
    is_left = world.insert("abcdefgh")
    call += "; then `abcdefgh` with the state after it"
    check_nodes(
        check,
        world,
        {"abcdefgh": "state of abcdefgh by 2"},
        call,
        "here the key ends where the node does",
    )
    check.equal(is_left, False, call=f"{call}: mamba_exist", look="the tree took it")
    world.insert("abcde")
    check.equal(
        world.lengths("abcdefghi"),
        [0, 0, 0, 0, 0, 0, 0, 8, 8],
        call=f"{call}, then `abcde`: tokens reused of each prefix",
        look="the state after `abcde` may not be stored for `abcd`",
    )


@test("the second state for a key stays with the caller")
def _(answer, check: Check):
    world = World(answer)
    call = "insert `abc` with a state, twice"
    is_left = world.insert("abc"), world.insert("abc")
    check_nodes(
        check,
        world,
        {"abc": "state of abc by 1"},
        call,
        "the tree keeps the state it has; one that is replaced would be lost to "
        "everybody",
    )
    check.equal(
        is_left,
        (False, True),
        call=f"{call}: mamba_exist of each",
        look="the caller is told to free the second one",
    )
    check.equal(
        (world.sizes(), len(world.pool.content)),
        ((1, 0), 1),
        call=f"{call}: (evictable_size, protected_size), slots in use",
        look="one state is kept",
    )


@test("tokens that are there already can get a state")
def _(answer, check: Check):
    world = World(answer)
    call = "insert `abcd` without a state"
    check.equal(
        (world.insert("abcd", state=False), world.states(), world.sizes()),
        (False, {}, (0, 0)),
        call=f"{call}: mamba_exist, states in the tree, sizes",
        look="nothing was offered, so nothing is left to the caller",
    )
    check.equal(
        (world.insert("abcd"), world.insert("ab"), world.states()),
        (False, False, {"abcd": "abcd by 2", "ab": "ab by 3"}),
        call=f"{call}; then `abcd` and `ab` with states",
        look="a key that ends inside a node cuts it; the upper half then ends with "
        "the key",
    )
    check.equal(world.sizes(), (2, 0), call=f"{call}; then both", look="two states")


@test("the root has no state")
def _(answer, check: Check):
    world = World(answer, page_size=4)
    for text in "", "abc":
        check.equal(
            (world.insert(text), world.states(), world.sizes()),
            (True, {}, (0, 0)),
            call=f"page size 4, insert {text!r} with a state: mamba_exist, states in "
            "the tree, sizes",
            look="no whole page: the key ends at the root, which has no data of any "
            "component",
        )


@test("a state needs the data of the other components")
def _(answer, check: Check):
    world = World(answer, window=4)
    call = "with a window of 4: insert `abcdefgh` with its window KV freed up to 8"
    check.equal(
        (world.insert("abcdefgh", dead=8), world.states()),
        (True, {}),
        call=f"{call}: mamba_exist, states in the tree",
        look="a tombstone in the window: no match can end here, whatever the state",
    )
    check.equal(
        (world.insert("abcdefgh", dead=4), world.states()),
        (False, {"abcdefgh": "abcdefgh by 2"}),
        call=f"{call}; then again, freed up to 4",
        look="the window is live now",
    )


@test("the array is the caller's")
def _(answer, check: Check):
    world = World(answer)
    value = array("i", [world.pool.allocate("a")])
    world.cache.insert(InsertParams(_key("a"), array("i", [0]), mamba_value=value))
    value[0] = world.pool.allocate("something else")
    check.equal(
        world.states(),
        {"a": "a"},
        call="insert `a` with a state; then the caller changes its array",
        look="store a copy of `params.mamba_value`",
    )


@test("a lock can be there before the state")
def _(answer, check: Check):
    world = World(answer)
    world.insert("abcd", state=False)
    node = next(world.cache.nodes())
    world.receipts["A"] = world.cache.inc_lock_ref(node)
    world.insert("abcd")
    call = "insert `abcd` without a state, lock its node, insert it with a state"
    check.equal(
        world.sizes(),
        (0, 1),
        call=f"{call}: (evictable_size, protected_size)",
        look="`_set_value` counts the state as protected if the node is locked",
    )
    world.match("ax")
    world.release("A")
    check.equal(
        (world.sizes(), world.locks()),
        ((1, 0), {}),
        call=f"{call}; cut the node, release the lock: sizes, locks",
        look="the lock is on the lower half, with the state",
    )


@test("a split does not change the order of use")
def _(answer, check: Check):
    world = World(answer)
    world.insert("abcd")
    world.insert("xyz")
    world.match("abq")
    check.equal(
        world.oldest_first(),
        ["abcd", "xyz"],
        call="states after `abcd` and `xyz`; then the prompt `abq` comes: the nodes in "
        "lru_list, oldest first",
        look="no state was used: the list is as it was, without the upper half",
    )


@test("agrees with a list of prefixes over many operations")
def _(answer, check: Check):
    for seed in range(6):
        page_size = (1, 1, 2, 2, 3, 4)[seed]
        check.operations(
            _operations(random.Random(seed), 50),
            expected=lambda page_size=page_size: Model(page_size),
            actual=lambda page_size=page_size: World(answer, page_size),
            look="a state is for exactly the tokens that it has seen "
            f"(page size {page_size})",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, texts, out = [], [""], []
    for number in range(count):
        kind = rng.choice(["insert", "insert", "match", "lock", "release"])
        old = rng.choice(texts)
        text = old[: rng.randrange(len(old) + 1)]
        text = (text + rng.choice("ab") * rng.randrange(4))[:12]
        if kind == "insert":
            texts.append(text)
            operations.append(("insert", text, rng.random() < 0.7))
        elif kind == "lock" and len(out) < 4:
            out.append(f"R{number}")
            operations.append(("lock", out[-1], rng.choice(texts)))
        elif kind == "release" and out:
            operations.append(("release", out.pop(rng.randrange(len(out)))))
        else:
            operations.append(("match", text))
    return operations + [("release", name) for name in out]
