"""The dense projection by the method of the four Russians (Arlazarov, Dinic, Kronrod, Faradzhev 1970), by numba.

Eight subjects have 256 sums of +-q; the byte that holds their signs for one row of S says which of these to add. All
sums are integers: of eight at most 2^18 in magnitude, of four such at most 2^20. Only what compiles this module imports
it: its loops are called by `compiled_projection`.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int32, types, uint64
from numba.extending import intrinsic
from numpy.typing import NDArray

from commingle.shared.compiling import compiled
from commingle.shared.mechanisms.rows.compiled_projection import LANES, TABLES

_SUMS = ir.VectorType(ir.IntType(64), LANES)
_LOOKED_UP = ir.VectorType(ir.IntType(32), LANES)


def _add_looked_up(_typing: Any, sums: Any, at: Any, table: Any, places: Any) -> Any:  # noqa: ANN401 - numba's types
    """sums[at : at + LANES] += table[p : p + LANES] of each of four places p.

    numba leaves so short a loop as it is; this is the same in vectors, which LLVM has for every processor.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401 - as above
        def pointer(which: int, place: Any, kind: Any) -> Any:  # noqa: ANN401 - as above
            array = context.make_array(signature.args[which])(context, builder, arguments[which])
            return builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())

        looked_up = ir.Constant(_LOOKED_UP, None)
        for number in range(TABLES):
            place = builder.extract_value(arguments[3], number)
            looked_up = builder.add(looked_up, builder.load(pointer(2, place, _LOOKED_UP), align=4))
        target = pointer(0, arguments[1], _SUMS)
        total = builder.add(builder.load(target, align=8), builder.sext(looked_up, _SUMS))
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return types.void(sums, at, table, places), generate


add_looked_up: Any = intrinsic(_add_looked_up)  # called without the first argument, which numba's annotations ask for


@compiled("void(u8[:,::1], u8[:,::1])")
def transpose(streams: NDArray[np.uint64], bits: NDArray[np.uint64]) -> None:
    """Bit s of each byte of stream i becomes bit i of that byte of bits s, for eight streams (8, words)."""
    for i in range(8):
        for w in range(streams.shape[1]):
            bits[i, w] = streams[i, w]
    for stage in range(3):
        step = 1 << stage  # keeps the bits whose number lacks it: 0x55.., 0x33.., 0x0F..
        mask = uint64(0xFFFFFFFFFFFFFFFF) // uint64((1 << step) + 1)
        for i in range(8):
            if not i & step:
                low, high = bits[i], bits[i + step]
                for w in range(low.size):
                    swapped = ((low[w] >> uint64(step)) ^ high[w]) & mask
                    high[w] ^= swapped
                    low[w] ^= swapped << uint64(step)


@compiled("void(i4[:,::1], i4[::1])")
def fill_table(q: NDArray[np.int32], table: NDArray[np.int32]) -> None:
    """table[c] = sum over eight subjects i of +-q[i], minus where bit i of c is 1; q (8, LANES), table 256 LANES."""
    for j in range(LANES):
        total = int32(0)
        for i in range(8):
            total += q[i, j]
        table[j] = total
    for i in range(8):
        size = 1 << i
        for c in range(size):
            for j in range(LANES):
                table[(size + c) * LANES + j] = table[c * LANES + j] - 2 * q[i, j]


@compiled("void(u8[:,:,::1], i4[:,:,::1], i8[:,:,::1], u8[:,:,::1], i4[::1], i8)")
def add_block(
    streams: NDArray[np.uint64],
    q: NDArray[np.int32],
    sums: NDArray[np.int64],
    bits: NDArray[np.uint64],
    table: NDArray[np.int32],
    first: int,
) -> None:
    """Adds the products of a block of subjects and of rows of S.

    streams (m / 8, 8, words): of each subject the signs of 64 words rows. q (panels, m, LANES). sums (panels, 8, k / 8
    LANES): row 8 p + 7 - s of Y is at [:, s, p LANES :], and the block's first row is 8 first. m is a multiple of 8
    TABLES. bits (TABLES, 8, words) and table, TABLES 256 LANES, are overwritten.
    """
    words = streams.shape[2]
    stretch = 256 * LANES
    for group in range(0, streams.shape[0], TABLES):
        for t in range(TABLES):
            transpose(streams[group + t], bits[t])
        codes = bits.view(np.uint8)
        for panel in range(q.shape[0]):
            for t in range(TABLES):
                start = 8 * (group + t)
                fill_table(q[panel, start : start + 8], table[t * stretch : (t + 1) * stretch])
            for s in range(8):
                row = sums[panel, s]
                c0, c1, c2, c3 = codes[0, s], codes[1, s], codes[2, s], codes[3, s]
                for p in range(uint64(8 * words)):
                    places = (
                        uint64(c0[p]) * uint64(LANES),
                        uint64(c1[p]) * uint64(LANES) + uint64(stretch),
                        uint64(c2[p]) * uint64(LANES) + uint64(2 * stretch),
                        uint64(c3[p]) * uint64(LANES) + uint64(3 * stretch),
                    )
                    add_looked_up(row, (uint64(first) + p) * uint64(LANES), table, places)
