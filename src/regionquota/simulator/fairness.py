"""How evenly regions are served, for what each asked for and what weight it has."""

from collections.abc import Sequence


def jain(
    asked: Sequence[Sequence[int]], admitted: Sequence[Sequence[int]], limit: int, weights: Sequence[int]
) -> float:
    """Jain's index of what each region got for each unit of its weighted max-min share of every bin: 1 if all got the
    same part of it, 1/n if one got everything.
    """
    regions = range(len(weights))
    shares = [0.0] * len(weights)
    for row in asked:
        for region, share in enumerate(max_min(row, limit, weights)):
            shares[region] += share
    got = [sum(row[region] for row in admitted) for region in regions]
    parts = [got[region] / shares[region] for region in regions if shares[region] > 0]
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0


def max_min(wants: Sequence[int], limit: int, weights: Sequence[int]) -> list[float]:
    """Nobody gets more than it wants; what one leaves over goes to the others by weight."""
    filled = [0.0] * len(wants)
    open_ = [region for region in range(len(wants)) if wants[region] and weights[region]]
    left = float(limit)
    while open_:
        total = sum(weights[region] for region in open_)
        content = [region for region in open_ if wants[region] * total <= left * weights[region]]
        if not content:
            for region in open_:
                filled[region] = left * weights[region] / total
            break
        for region in content:
            filled[region] = wants[region]
        left -= sum(wants[region] for region in content)
        open_ = [region for region in open_ if region not in content]
    return filled
