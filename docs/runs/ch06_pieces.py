"""A text in pieces, token by token: three ways, of which the last is right."""

from helper import smollm2

from minisgl.llm.llm import IncrementalText, load_tokenizer

tokenizer = load_tokenizer(smollm2())
ids = tokenizer("naïve 日本 🦜!").input_ids


def show(name, pieces):
    print(f"{name:<21} {' '.join(f'{piece!r:<6}' for piece in pieces).rstrip()}")
    print(f"{'':<21} joined {''.join(pieces)!r}")


def what_is_new():
    given = ""
    for end in range(1, len(ids) + 1):
        whole = tokenizer.decode(ids[:end])
        yield whole[len(given) :]
        given = whole


show("each token alone", [tokenizer.decode([token]) for token in ids])
show("what is new each time", list(what_is_new()))
stream = IncrementalText(tokenizer)
last = len(ids) - 1
show("IncrementalText", [stream.push(t, is_last=i == last) for i, t in enumerate(ids)])
