"""Top-p sampling over a list of probabilities."""


def sample_top_p(probs: list[float], top_p: float, uniform: float) -> int:
    """The token that `uniform` in [0, 1) draws from the smallest set holding `top_p`.

    Most likely token first; of equally likely ones, the lower id first.
    """
    raise NotImplementedError("top-p: sample_top_p")
