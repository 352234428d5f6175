from grading import Check, test


@test("counts add up", example=True)
def _(answer, check: Check) -> None:
    counter = answer.Counter()
    counter.add(2)
    check.equal(counter.add(3), 5, call="add(2), then add(3)", look="return the total")


@test("a negative count is refused")
def _(answer, check: Check) -> None:
    counter = answer.Counter()
    check.raises(
        ValueError,
        lambda: counter.add(-1),
        call="add(-1)",
        mentions=["-1"],
        look="raise ValueError",
    )
    check.equal(
        counter.total, 0, call="add(-1)", look="a refused count changes nothing"
    )
