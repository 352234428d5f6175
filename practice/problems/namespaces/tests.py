"""Namespaces by themselves, and in the tree against a model."""

import random
from array import array

from grading import draw_tree, test
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey
from radix_world import PrefixModel, TreeWorld, draw_rows, path

GLUED = "in glued text nobody can tell where one value ends and the next begins"
SIGNS = "a value may contain any sign, also the one between two fields"
NAMES = (
    "the name of a field belongs to it: the same text as salt and as adapter differs"
)
EMPTY = "an empty string is a value, and None is none: test `is not None`"
LEVELS = (
    "the namespace parts requests once, below the root; "
    "below the first page, everybody is of the same namespace already"
)


def check_apart(check, answer, one, other, look):
    first, second = answer.namespace(**one), answer.namespace(**other)
    check.true(
        (first == second) is False,
        call=f"namespace(**{one}) and namespace(**{other})",
        expected="two different values",
        actual=f"{first!r} and {second!r}",
        look=look,
    )


@test("salt and adapter are not glued together", example=True)
def _(answer, check):
    one, other = {"salt": "a", "lora": "bc"}, {"salt": "ab", "lora": "c"}
    check_apart(check, answer, one, other, GLUED)
    one, other = {"lora": "a", "salt": "bc"}, {"lora": "ab", "salt": "c"}
    check_apart(check, answer, one, other, GLUED)
    check_apart(check, answer, {"salt": "abc"}, {"lora": "a", "salt": "bc"}, NAMES)


@test("the same text in another field is another namespace")
def _(answer, check):
    check_apart(check, answer, {"salt": "x"}, {"lora": "x"}, NAMES)
    one, other = {"salt": "x", "lora": "y"}, {"salt": "y", "lora": "x"}
    check_apart(check, answer, one, other, NAMES)


@test("a sign in a value does not make two fields of it")
def _(answer, check):
    for sign in "|&;:,/ \n\0'\"()":
        for equals in "=:, ":
            one = {"lora": "x", "salt": "y"}
            other = {"lora": f"x{sign}salt{equals}y"}
            check_apart(check, answer, one, other, SIGNS)
            other = {"lora": f"x{sign}y"}
            check_apart(check, answer, one, other, SIGNS)


@test("an empty field is given, and None is not")
def _(answer, check):
    check_apart(check, answer, {"salt": ""}, {}, EMPTY)
    check_apart(check, answer, {"salt": "", "lora": "x"}, {"lora": "x"}, EMPTY)
    for fields, right in (
        ({}, None),
        ({"salt": None}, None),
        ({"salt": None, "lora": None}, None),
        ({"salt": None, "lora": "x"}, (("lora", "x"),)),
        ({"salt": ""}, (("salt", ""),)),
    ):
        call = f"namespace(**{fields})"
        check.equal(answer.namespace(**fields), right, call=call, look=EMPTY)


@test("the value is a sorted tuple of pairs", example=True)
def _(answer, check):
    right = (("lora", "bc"), ("salt", "a"))
    look = "the same fields make the same namespace, in whatever order they are given"
    for fields in ({"salt": "a", "lora": "bc"}, {"lora": "bc", "salt": "a"}):
        call = f"namespace(**{fields})"
        check.equal(answer.namespace(**fields), right, call=call, look=look)
    right = (("a", "z"), ("b", "y"), ("extra_key", "x"))
    got = answer.namespace(extra_key="x", b="y", a="z")
    check.equal(got, right, call="namespace(extra_key='x', b='y', a='z')", look=look)


@test("a value that is not a string is refused")
def _(answer, check):
    for value in (7, 0, False, b"x", ["x"], ("x",)):
        check.raises(
            InvalidKeyError,
            lambda value=value: answer.namespace(salt="a", lora=value),
            call=f"namespace(salt='a', lora={value!r})",
            look="say which field it is, and what was given",
            mentions=("lora", repr(value)),
        )


def pack(*tokens):
    return array("i", tokens).tobytes()


def make_key(answer, tokens, fields):
    """A key whose namespace comes from the answer."""
    key = RadixKey(tokens)
    key.namespace = answer.namespace(**fields)
    return key


@test("a child is found under its first page, below the root with the namespace")
def _(answer, check):
    tenant = (("salt", "a"),)
    for fields, pos, right, look in (
        ({}, 0, pack(1, 2), "a plain request has no namespace to add"),
        ({"salt": "a"}, 0, (tenant, pack(1, 2)), "a pair: namespace, first page"),
        ({}, 2, pack(3, 4), "the first page of what is left from token `pos` on"),
        ({"salt": "a"}, 2, pack(3, 4), LEVELS),
        ({"salt": "a"}, 4, pack(5), "what is left may be less than a page"),
    ):
        tree = answer.RadixTree(2)
        key = make_key(answer, [1, 2, 3, 4, 5], fields)
        call = f"RadixTree(2)._child_key(key of [1, 2, 3, 4, 5] with {fields}, {pos})"
        check.equal(tree._child_key(key, pos), right, call=call, look=look)


# --- in the tree ----------------------------------------------------------------------


class Engine(TreeWorld):
    """The answer's tree and namespaces."""

    def __init__(self, answer, page_size=1):
        super().__init__(answer.RadixTree(page_size))
        self.answer = answer

    def insert(self, tokens, fields):
        key = make_key(self.answer, tokens, fields)
        return self.tree.insert_prefix(key, self.next_slots(tokens)).cached_len

    def match(self, tokens, fields):
        key = make_key(self.answer, tokens, fields)
        return self.tree.match_prefix(key).matched_slots().tolist()

    def state(self):
        nodes = [node for node in self.tree.nodes() if node.parent]
        nodes = sorted((path(n), n.value.tolist(), n.timestamp) for n in nodes)
        return {"nodes": nodes, "check_integrity()": self.integrity()}

    def draw(self):
        def label(node):
            named = isinstance(node.child_key, tuple)
            owner = f" of {node.child_key[0]}" if named else ""
            return f"{node.key.tolist()} slots {node.value.tolist()}{owner}"

        return draw_tree(
            self.tree.root_node,
            lambda node: sorted(node.children.values(), key=lambda n: n.packed),
            lambda node: label(node) if node.parent else "root",
        )


class Model(PrefixModel):
    """The same without a tree: a namespace is the set of its fields."""

    def insert(self, tokens, fields):
        return super().insert(tokens, space=given(fields))

    def match(self, tokens, fields):
        return super().match(tokens, given(fields))

    def state(self):
        nodes = ((sum(path[1:], []), *rest) for path, *rest, _ in self.rows())
        return {"nodes": sorted(nodes), "check_integrity()": self.integrity()}

    def draw(self):
        def label(row):
            path, slots, _, _ = row
            fields = sorted(path[0]) if len(path) == 2 else []
            owner = f" of {tuple(fields)}" if fields else ""
            return f"{path[-1]} slots {slots}{owner}"

        return draw_rows(sorted(self.rows(), key=lambda row: row[0][1:]), label)


def given(fields):
    return frozenset((k, v) for k, v in fields.items() if v is not None)


@test("tenants with the same tokens do not find each other")
def _(answer, check):
    keys = (
        {"salt": "a", "lora": "bc"},
        {"salt": "ab", "lora": "c"},
        {"extra_key": "bc"},
        {"salt": "abc"},
        {"salt": ""},
        {},
    )
    look = "the same tokens under another namespace are another prefix"
    for stored in keys:
        world = Engine(answer)
        world.insert([1, 2], stored)
        for asked in keys:
            slots = [0, 1] if asked == stored else []
            call = f"insert [1, 2] for {stored}; match it for {asked}"
            check.equal(world.match([1, 2], asked), slots, call=call, look=look)


@test("a tenant finds his own prefix after it was split")
def _(answer, check):
    tenant = {"salt": "a"}
    world = Engine(answer)
    world.insert([1, 2, 3, 4], tenant)
    world.insert([1, 2, 3, 4], {})
    call = "insert [1, 2, 3, 4] for a tenant and for nobody; the tenant asks for "
    for tokens, slots in (
        ([1, 2, 9], [0, 1]),
        ([1, 8], [0]),
        ([1, 2, 3, 4], [0, 1, 2, 3]),
    ):
        got = world.match(tokens, tenant)
        check.equal(got, slots, call=f"{call}{tokens}", look=LEVELS)
    world.insert([1, 2, 3, 5], tenant)
    call += "[1, 2, 3, 5] after he inserted it"
    got = world.match([1, 2, 3, 5], tenant)
    check.equal(got, [0, 1, 2, 11], call=call, look=LEVELS)


FIELDS = (
    {},
    {"salt": "a", "lora": "bc"},
    {"salt": "ab", "lora": "c"},
    {"lora": "bc", "salt": "a"},
    {"salt": "a", "lora": None},
    {"lora": "a"},
    {"salt": ""},
    {"lora": "bc&salt=a"},
)


def random_life(seed, page_size):
    """Few prompts, for many tenants."""
    rng = random.Random(seed)
    operations, prompts = [], [[]]
    for _ in range(50):
        start = rng.choice(prompts)[: rng.randrange(3 * page_size)]
        prompts.append(start + rng.choices((1, 2), k=rng.randrange(2 * page_size + 1)))
        tokens, fields = rng.choice(prompts), rng.choice(FIELDS)
        operations.append(
            rng.choice(
                [("insert", tokens, fields)] * 4
                + [("match", tokens, fields)] * 3
                + [("evict", rng.choice((1, 2, 5)))]
            )
        )
    return operations


@test("long sequences of several tenants, against a model without a tree")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_life(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Engine(answer, size),
                look="the same tokens under another namespace are another prefix, and "
                "the rest is as without namespaces",
                draw=lambda world: world.draw(),
            )
