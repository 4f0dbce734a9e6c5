"""How many buckets a release of keyed moments should have: those that are worth their seconds, from public numbers.

Of n subjects n e^(-n/m) count in m buckets, so a slope's variance grows: that of drawing people by e^(n/m), that of
noise by e^(2n/m). Noise of J parties with d columns each, uniform within their bounds, has about R = 9 J d^2 / (rho n)
times the variance of drawing n people. Every bucket costs everybody seconds whether somebody is in it or not. So m
makes

    log(R e^(2n/m) + e^(n/m)) + 1/2 log(10 + seconds(m))

least: twice the seconds are worth it where variances fall by 1/sqrt(2), and 10 of them are spent on any release.
"""

from functools import lru_cache
from math import exp, log

from commingle.shared.mechanisms.moments.block import MOMENTS

LEAST, MOST = 2, 16
"""For each subject. With fewer than one bucket each, fewer count the more there are, and nobody could say how many that
is; where n is said too small by half there is one each. With 16 hardly anybody meets. What counts is n as the spec says
it, which everybody knows. A party's own count decides nothing: what it refuses is seen by all, and would tell it.
"""
_FOR_EACH = (LEAST, 3, 4, 6, 8, 12, MOST)
_ANY_RELEASE = 10.0  # seconds
_WORTH = 0.5


@lru_cache(maxsize=1024)
def chosen_buckets(n: int, *, rho: float, columns: tuple[int, ...], proved: bool) -> int:
    """The m of the formula; of so many that an exchange has none of these sizes, the fewest.

    Args:
        n: subjects of a party, about.
        rho: that a party may spend.
        columns: of each party's table, its presence among them.
        proved: whether bounds are.
    """
    per_party = sum(columns) / len(columns)
    noise = 9 * len(columns) * per_party**2 / (rho * n)
    named = {str(place): count for place, count in enumerate(columns)}

    def cost(each: int) -> float:
        exchanged = MOMENTS.exchange_cost(each * n, named, proved=proved)
        seconds = float("inf") if exchanged is None else exchanged.seconds
        return log(noise * exp(2 / each) + exp(1 / each)) + _WORTH * log(_ANY_RELEASE + seconds)

    return n * min(_FOR_EACH, key=cost)
