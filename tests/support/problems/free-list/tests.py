import random

from grading import Check, NotApplicable, draw_table, test


class Model:
    def __init__(self, num_pages: int) -> None:
        self.free = list(range(num_pages))
        self.out: list[int] = []

    def take(self) -> int | None:
        if not self.free:
            return None
        self.out.append(self.free.pop(0))
        return self.out[-1]

    def give(self, page: int) -> None:
        if page not in self.out:
            raise NotApplicable
        self.out.remove(page)
        self.free.append(page)


class Wrapped:
    def __init__(self, free_list) -> None:
        self.free_list = free_list

    def take(self) -> int | None:
        return self.free_list.take()

    def give(self, page: int) -> None:
        self.free_list.give(page)


def drawn(world) -> str:
    if isinstance(world, Model):
        return draw_table(["page", "is"], [[p, "free"] for p in world.free])
    return "not known"


@test("hands out pages in order", example=True)
def _(answer, check: Check) -> None:
    pages = answer.FreeList(3)
    taken = [pages.take() for _ in range(4)]
    check.equal(taken, [0, 1, 2, None], call="take() four times", look="None at last")


@test("refuses a page that is not out")
def _(answer, check: Check) -> None:
    pages = answer.FreeList(2)
    page = pages.take()
    check.equal(pages.give(page), None, call="give(0)", look="nothing to return")
    check.raises(
        ValueError,
        lambda: pages.give(page),
        call="give(0) twice",
        mentions=["0"],
        look="remember which pages are out",
    )


@test("a page that came back waits for its turn")
def _(answer, check: Check) -> None:
    chance = random.Random(7)
    operations = [
        ("take",) if chance.random() < 0.6 else ("give", chance.randrange(4))
        for _ in range(23)
    ]
    check.operations(
        operations,
        expected=lambda: Model(4),
        actual=lambda: Wrapped(answer.FreeList(4)),
        draw=drawn,
        look="oldest free page first",
    )
