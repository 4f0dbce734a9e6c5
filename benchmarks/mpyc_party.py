"""One of three MPyC parties, each started as a process of its own by `benchmarks.mpyc_products`.

python -m benchmarks.mpyc_party -P localhost:PORT ... -I INDEX N COLUMNS

Shares its matrix among all (Shamir, threshold 1), multiplies and opens. Prints products, seconds and bytes as JSON.
"""

import json
import sys
import time
from itertools import combinations
from typing import Any

from mpyc.runtime import mpc

from benchmarks.mpyc_products import PARTIES, matrix

_WORD = 2**64


async def _products(n: int, columns: int) -> dict[str, Any]:
    field = mpc.SecFld(min_order=_WORD, signed=True)  # the least field that holds what 64-bit words hold
    own = field.array(matrix(mpc.pid, n, columns).astype(object))
    async with mpc:
        wall, cpu = time.perf_counter(), time.process_time()
        shared = mpc.input(own, senders=list(range(PARTIES)))
        pairs = [mpc.np_matmul(shared[i].T, shared[j]) for i, j in combinations(range(PARTIES), 2)]
        opened = [await mpc.output(pair) for pair in pairs]
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    return {**seconds, "bytes": sent, "products": [[[int(x) for x in row] for row in pair] for pair in opened]}


if __name__ == "__main__":
    print(json.dumps(mpc.run(_products(int(sys.argv[1]), int(sys.argv[2])))))
