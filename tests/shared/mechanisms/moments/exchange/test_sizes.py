from typing import Literal

import pytest

from commingle.shared.mechanisms.moments.block import MOMENTS
from commingle.shared.mechanisms.moments.exchange.sizes import exchange_cost
from commingle.shared.ring.parameters import ROWS_LIMIT
from tests.world.side import approved, traffic

THREE = {"a": 2, "b": 17, "c": 1}


@pytest.mark.parametrize("bounds", ["trusted", "proved"])
def test_bytes_of_all_parties_are_those_of_the_messages_up_once_and_down_to_who_reads_them(
    bounds: Literal["trusted", "proved"],
) -> None:
    exchange = approved(9_000, 3, 3, bounds=bounds).exchange
    cost = exchange_cost(9_000, dict.fromkeys(exchange.parties, 3), proved=exchange.proved)
    assert cost.bytes == sum(p.bytes_sent + p.bytes_received for p in cost.parties) == traffic(exchange)
    for party in cost.parties:
        assert party.bytes_sent == exchange.columns_size(party.name) + exchange.reply_size(party.name)


def test_proofs_cost_what_trusted_bounds_would_save() -> None:
    proved, trusted = (exchange_cost(100_000, THREE, proved=proved) for proved in (True, False))
    assert (proved.bounds, trusted.bounds) == ("proved", "trusted")
    assert proved.proof_bytes == proved.bytes - trusted.bytes > 0
    assert proved.proof_seconds == pytest.approx(proved.seconds - trusted.seconds)
    assert proved.proof_seconds > trusted.seconds > 0
    assert (trusted.proof_bytes, trusted.proof_seconds) == (0, 0)


def test_costs_grow_with_rows_and_columns() -> None:
    least, *more = (exchange_cost(n, {"a": d, "b": d}, proved=True) for n, d in [(10**4, 5), (10**5, 5), (10**4, 40)])
    assert all(cost.bytes > least.bytes and cost.seconds > least.seconds for cost in more)


@pytest.mark.parametrize(("n", "columns", "proved"), [(ROWS_LIMIT + 1, 1, False), (ROWS_LIMIT, 20, True)])
def test_exchange_that_a_spec_may_not_ask_for_has_no_cost(n: int, columns: int, *, proved: bool) -> None:
    assert MOMENTS.exchange_cost(n, {"a": columns, "b": columns}, proved=proved) is None
    assert MOMENTS.exchange_cost(10_000, {"a": columns, "b": columns}, proved=proved) is not None
