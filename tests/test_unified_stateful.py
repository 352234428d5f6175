"""Random operations on the unified tree, against slots that remember their prefix.

Every Full slot, window slot and state notes the namespace and the whole prefix it was
computed for. From the notes of the slots that are neither free nor a request's own
follows what the tree must match; and whatever a request reads must carry its prefix.

Set MINISGL_STATEFUL_EXAMPLES to run more examples than the default, in other orders,
and to see a failure shrunk to its smallest form (which takes a while).
"""

from __future__ import annotations

import os
from array import array
from collections import Counter

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from unified_world import FULL, MAMBA, SWA, FakeReq, World

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import EvictParams, InsertParams

EXAMPLES = int(os.environ.get("MINISGL_STATEFUL_EXAMPLES", "0"))

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)
spaces = st.sampled_from([None, None, "a"])
picks = st.integers(0, 1_000_000)


class UnifiedMachine(RuleBasedStateMachine):
    kinds = (FULL,)

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        window=st.integers(1, 5),
        grid=st.sampled_from([1, 2]),
        num_pages=st.integers(4, 12),
        num_states=st.integers(2, 6),
    )
    def build(self, page_size, window, grid, num_pages, num_states):
        num_slots = 4 * num_pages
        self.num_window_slots = max(8, num_slots - 8)
        self.num_states = num_states
        self.world = World(
            page_size=page_size,
            window=window if SWA in self.kinds else None,
            num_states=num_states if MAMBA in self.kinds else None,
            grid=page_size * grid,
            num_slots=num_slots,
            num_window_slots=self.num_window_slots,
        )
        self.num_slots = num_slots
        self.cache, self.pool = self.world.cache, self.world.pool
        self.windows, self.states = self.world.window, self.world.states
        self.page_size, self.window, self.grid = page_size, window, page_size * grid
        self.notes = {FULL: {}, SWA: {}}  # slot -> (namespace, prefix)
        self.reqs = []
        self.receipts = []

    # what requests do

    @rule(prompt=prompts, space=spaces, pick=picks)
    def admit(self, prompt, space, pick):
        """Match, take a copy of the state, lock, and compute a first slice."""
        prompt = tuple(prompt)
        req = FakeReq(array("i"), array("i"), None, None, space)
        match = self.world.match(prompt[:-1], space, req)
        self.check_match(match, prompt[:-1], space)
        req.prompt = prompt
        req.last_node = match.last_device_node
        req.lock = self.cache.inc_lock_ref(req.last_node)
        req.cache_protected_len = match.cached_len
        req.token_ids = array("i", prompt[: match.cached_len])
        req.slots = match.device_indices
        if self.states and req.mamba_pool_idx is None:
            if match.cached_len == 0:
                req.mamba_pool_idx = self.world.component(MAMBA).allocate_state()
            if req.mamba_pool_idx is None:  # all states are in use: refused
                self.cache.dec_lock_ref(req.last_node, req.lock.to_dec_params())
                return
            self.states.content[req.mamba_pool_idx] = (space, ())
        self.reqs.append(req)
        self.compute(req, pick)

    @precondition(lambda self: self.reqs)
    @rule(pick=picks, num=picks)
    def go_on(self, pick, num):
        self.compute(self.reqs[pick % len(self.reqs)], num)

    def compute(self, req, pick):
        """Compute more tokens: check what is read, note what is written."""
        begin = len(req.token_ids)
        if begin == len(req.prompt):
            return
        end = begin + 1 + pick % (len(req.prompt) - begin)
        missing = end - len(req.slots)
        if missing > 0:
            own = self.allocate(missing)
            if own is None:
                return
            req.slots += own
        for pos in range(begin, end):
            self.check_reads(req, pos)
            self.note(req, pos)
        if self.states:
            self.take_checkpoint(req, begin, end)
            content = self.states.content
            assert content[req.mamba_pool_idx] == (req.extra_key, req.prompt[:begin])
            content[req.mamba_pool_idx] = (req.extra_key, req.prompt[:end])
            req.mamba_seqlen = end
        req.token_ids = array("i", req.prompt[:end])

    def allocate(self, num):
        slots = self.pool.allocate(num)
        if slots is None:
            window = num + self.page_size if self.windows else 0
            self.cache.evict(EvictParams(num + self.page_size, window))
            slots = self.pool.allocate(num)
        return slots

    def note(self, req, pos):
        prefix = (req.extra_key, req.prompt[: pos + 1])
        self.notes[FULL][req.slots[pos]] = prefix
        if self.windows:
            self.notes[SWA][self.windows.pairs[req.slots[pos]]] = prefix

    def check_reads(self, req, pos):
        for i in range(pos):
            slot, prefix = req.slots[i], (req.extra_key, req.prompt[: i + 1])
            assert self.notes[FULL][slot] == prefix, f"token {i} reads a foreign slot"
            if self.windows and i > pos - self.window:
                assert self.notes[SWA][self.windows.pairs[slot]] == prefix

    def take_checkpoint(self, req, begin, end):
        """Keep the state at the last point of the grid that the slice passes."""
        length = (end - 1) // self.grid * self.grid
        if length <= begin or req.mamba_track_idx is not None:
            return
        slot = self.world.component(MAMBA).allocate_state()
        if slot is not None:
            self.states.content[slot] = (req.extra_key, req.prompt[:length])
            req.mamba_track_idx, req.mamba_last_track_seqlen = slot, length

    @precondition(lambda self: self.windows and self.reqs)
    @rule(pick=picks)
    def leave_window(self, pick):
        """Free the window KV that a request will not read again."""
        req = self.reqs[pick % len(self.reqs)]
        swa = self.world.component(SWA)
        frontier = swa.max_evicted_seqlen(len(req.token_ids))
        if req.mamba_track_idx is not None:  # the checkpoint needs its window
            frontier = swa.max_evicted_seqlen(req.mamba_last_track_seqlen)
        own = max(req.cache_protected_len, req.swa_evicted_seqlen)
        if frontier > own:
            self.windows.free(req.slots[own:frontier])
            req.swa_evicted_seqlen = frontier
        if frontier >= req.cache_protected_len and swa in req.lock.held:
            self.world.unlock(req.lock, SWA)

    @precondition(lambda self: self.reqs)
    @rule(pick=picks)
    def cache_unfinished(self, pick):
        req = self.reqs[pick % len(self.reqs)]
        before = req.cache_protected_len
        self.cache.cache_unfinished_req(req)
        assert req.cache_protected_len >= before

    @precondition(lambda self: self.reqs)
    @rule(pick=picks, is_insert=st.booleans())
    def finish(self, pick, is_insert):
        req = self.reqs.pop(pick % len(self.reqs))
        self.cache.cache_finished_req(req, is_insert)

    # what else may happen

    @rule(prompt=prompts, space=spaces)
    def match(self, prompt, space):
        match = self.world.match(prompt, space)
        self.check_match(match, tuple(prompt), space)

    @rule(prompt=prompts, space=spaces)
    def lock(self, prompt, space):
        self.receipts.append(self.world.lock(prompt, space))

    @precondition(lambda self: self.receipts)
    @rule(pick=picks)
    def unlock(self, pick):
        self.world.unlock(self.receipts.pop(pick % len(self.receipts)))

    @precondition(lambda self: self.windows and self.receipts)
    @rule(pick=picks)
    def unlock_window(self, pick):
        receipt = self.receipts[pick % len(self.receipts)]
        if self.world.component(SWA) in receipt.held:
            self.world.unlock(receipt, SWA)

    @rule(prompt=prompts, space=spaces, frontier=picks, has_state=st.booleans())
    def insert(self, prompt, space, frontier, has_state):
        """Insert a prompt computed without the tree, whatever its window."""
        slots = self.pool.allocate(len(prompt))
        if slots is None:
            return
        req = FakeReq(array("i", prompt), slots, None, None, space)
        req.prompt = tuple(prompt)
        for pos in range(len(prompt)):
            self.note(req, pos)
        params = InsertParams(RadixKey(prompt, space), slots)
        if self.windows:
            num_pages = len(slots) // self.page_size
            params.swa_evicted_seqlen = frontier % (num_pages + 1) * self.page_size
            self.windows.free(slots[: params.swa_evicted_seqlen])
        slot = self.states.allocate() if self.states and has_state else None
        if slot is not None:
            self.states.content[slot] = (space, tuple(prompt))
            params.mamba_value = array("i", [slot])
        result = self.cache.insert(params)
        if slot is not None and result.mamba_exist:
            self.states.free(slot)
        self.pool.free(slots[len(prompt) // self.page_size * self.page_size :])

    @rule(full=st.integers(0, 6), swa=st.integers(0, 6), mamba=st.integers(0, 2))
    def evict(self, full, swa, mamba):
        wanted = [full, swa * bool(self.windows), mamba * bool(self.states)]
        before = [self.world.sizes(kind) for kind in self.kinds]
        result = self.cache.evict(EvictParams(*wanted))
        freed = [
            result.num_tokens_evicted,
            result.swa_num_tokens_evicted,
            result.mamba_num_evicted,
        ]
        for kind, (evictable, protected) in zip(self.kinds, before, strict=True):
            assert freed[kind] >= min(wanted[kind], evictable)
            after = self.world.sizes(kind)
            assert after == (evictable - freed[kind], protected)

    # what must hold

    def check_match(self, match, prompt, space):
        assert match.cached_len == self.expected_len(prompt, space)
        slots = match.device_indices
        assert len(slots) == match.cached_len
        for i, slot in enumerate(slots):
            assert self.notes[FULL][slot] == (space, prompt[: i + 1])

    def expected_len(self, prompt, space):
        """The longest prefix that the notes of the tree's slots allow."""
        prompt = tuple(prompt)
        has = {kind: self.noted_in_tree(kind, space) for kind in self.kinds}
        best = 0
        for num in range(self.page_size, len(prompt) + 1, self.page_size):
            ends = [prompt[:i] for i in range(1, num + 1)]
            if not has[FULL].issuperset(ends):
                break
            if SWA in has and not has[SWA].issuperset(ends[-self.window :]):
                continue
            if MAMBA in has and ends[-1] not in has[MAMBA]:
                continue
            best = num
        return best

    def noted_in_tree(self, kind, space):
        """The prefixes whose slots belong neither to a pool nor to a request."""
        if kind is MAMBA:
            notes, gone = self.states.content, Counter(self.states_of_reqs())
        elif kind is SWA:
            notes, gone = self.notes[SWA], Counter(self.windows.free_slots)
            gone.update(self.windows_of_reqs())
        else:
            free = (
                page * self.page_size + i
                for page in self.pool.free_pages
                for i in range(self.page_size)
            )
            notes, gone = self.notes[FULL], Counter(free)
            gone.update(slot for req in self.reqs for slot in own_slots(req))
        return {
            note[1]
            for slot, note in notes.items()
            if slot not in gone and note[0] == space
        }

    def states_of_reqs(self):
        for req in self.reqs:
            yield from {req.mamba_pool_idx, req.mamba_track_idx} - {None}

    def windows_of_reqs(self):
        pairs = self.windows.pairs
        return [pairs[s] for req in self.reqs for s in own_slots(req) if s in pairs]

    @invariant()
    def the_tree_is_sound(self):
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        assert len(self.cache.receipts) == len(self.receipts) + len(self.reqs)
        self.every_slot_is_in_one_place()
        for req in self.reqs:
            assert not set(req.slots) & set(free_slots(self.pool))

    def every_slot_is_in_one_place(self):
        places = Counter(free_slots(self.pool))
        places.update(slot for req in self.reqs for slot in own_slots(req))
        places.update(self.slots_in_tree(FULL))
        assert places == Counter(range(self.num_slots))
        if self.windows:
            places = Counter(self.windows.free_slots)
            places.update(self.windows_of_reqs())
            places.update(self.windows.pairs[s] for s in self.slots_in_tree(SWA))
            assert places == Counter(range(1000, 1000 + self.num_window_slots))
            for node in self.cache.nodes():
                live = [s in self.windows.pairs for s in node.value(FULL)]
                assert live == [node.value(SWA) is not None] * len(node)
                assert node.value(SWA) in (None, node.value(FULL))
        if self.states:
            places = Counter(self.states.free_slots)
            places.update(self.states_of_reqs())
            places.update(self.slots_in_tree(MAMBA))
            assert places == Counter(range(self.num_states))
            assert places.keys() - self.states.free_slots == self.states.content.keys()

    def slots_in_tree(self, kind):
        for node in self.cache.nodes():
            yield from node.value(kind) or ()

    def teardown(self):
        if not hasattr(self, "cache"):
            return
        for receipt in self.receipts:
            self.world.unlock(receipt)
        for req in self.reqs:
            self.cache.cache_finished_req(req)
        self.receipts, self.reqs = [], []
        self.the_tree_is_sound()
        self.cache.evict(EvictParams(self.num_slots, self.num_slots, self.num_slots))
        assert self.cache.root_node.children == {}
        assert sorted(free_slots(self.pool)) == list(range(self.num_slots))


def own_slots(req):
    return req.slots[req.cache_protected_len :]


def free_slots(pool):
    for page in pool.free_pages:
        yield from range(page * pool.page_size, (page + 1) * pool.page_size)


class FullSWAMachine(UnifiedMachine):
    kinds = (FULL, SWA)


class FullMambaMachine(UnifiedMachine):
    kinds = (FULL, MAMBA)


class AllMachine(UnifiedMachine):
    kinds = (FULL, SWA, MAMBA)


def case_of(machine):
    case = machine.TestCase
    case.settings = settings(
        max_examples=EXAMPLES or 60,
        stateful_step_count=40,
        derandomize=not EXAMPLES,
        phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestFull = case_of(UnifiedMachine)
TestFullAndSlidingWindow = case_of(FullSWAMachine)
TestFullAndState = case_of(FullMambaMachine)
TestAllThree = case_of(AllMachine)
