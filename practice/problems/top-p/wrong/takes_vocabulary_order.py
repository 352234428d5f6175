"""Goes through the tokens as they come in the vocabulary."""


def sample_top_p(probs: list[float], top_p: float, uniform: float) -> int:
    """The token that `uniform` in [0, 1) draws from the smallest set holding `top_p`.

    Most likely token first; of equally likely ones, the lower id first.
    """
    kept, total = [], 0.0
    for token in range(len(probs)):
        if total >= top_p:
            break
        kept.append(token)
        total += probs[token]
    target, passed = uniform * total, 0.0
    for token in kept:
        passed += probs[token]
        if passed > target:
            break
    return token
