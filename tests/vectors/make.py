"""Writes sign_stream.json, sparse_mixing.json and calibration.json, by the formulas alone, importing nothing of ours.

Usage, at the root of the repository: python -m tests.vectors.make
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from itertools import product
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

HERE = Path(__file__).parent

SEEDS = (bytes(32), bytes(range(100, 132)), hashlib.sha256(b"a release seed").digest())
RANKS = (0, 1, 3, 255, 256, 70_001, 2**32 - 1, 2**32, 2**40 + 5, 2**63, 2**64 - 1)
ROWS = (1, 6, 8, 127, 128, 130, 300, 1029)
LONGEST_WRITTEN = 130

EPSILONS = (0.003, 0.02, 0.25, 0.7, 1.0, 1.5, 4.0, 9.0)
DELTAS = (1e-3, 2e-5, 1e-7, 5e-10)
CLASSICAL_LIMIT = 1.0
DIGITS = 50
GUARD = 60  # lost to cancellation in the normal distribution's series
PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"


def sign_bits(seed: bytes, rank: int, rows: int) -> str:
    """Bits of one column: AES-256 under SHA-256(label || seed) of rank (12 bytes) || block number (4 bytes)."""
    key = hashlib.sha256(b"commingle/v1/mixing" + seed).digest()
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # noqa: S305 - distinct public counters
    blocks = range(-(-rows // 128))
    stream = b"".join(encrypt(rank.to_bytes(12, "big") + j.to_bytes(4, "big")) for j in blocks)
    return "".join(f"{byte:08b}" for byte in stream)[:rows]


def projected(seed: bytes, k: int, ranks: Sequence[int], q: Sequence[Sequence[int]]) -> list[list[int]]:
    """Y[r][c] = sum over subjects of s q[c], s = -1 where bit r of the subject's column is 1."""
    total = [[0] * len(q[0]) for _ in range(k)]
    for rank, row in zip(ranks, q, strict=True):
        for r, bit in enumerate(sign_bits(seed, rank, k)):
            total[r] = [y + (-x if bit == "1" else x) for y, x in zip(total[r], row, strict=True)]
    return total


def sign_vector(seed: bytes, rank: int, rows: int) -> dict[str, Any]:
    """One column, written out where it is short."""
    bits = sign_bits(seed, rank, rows)
    short = {"bits": bits} if rows <= LONGEST_WRITTEN else {}
    facts = {"seed": seed.hex(), "rank": rank, "k": rows}
    return {**facts, **short, "sha256_of_bits": hashlib.sha256(bits.encode()).hexdigest()}


def projection_vector(seed: bytes, k: int, ranks: Sequence[int], q: list[list[int]]) -> dict[str, Any]:
    """One projection, its first rows and the digest of all."""
    y = projected(seed, k, ranks, q)
    digest = hashlib.sha256(json.dumps(y, separators=(",", ":")).encode()).hexdigest()
    return {"seed": seed.hex(), "k": k, "ranks": list(ranks), "Q": q, "Y_first_rows": y[:3], "Y_sha256_of_json": digest}


def entries(label: str, rows: int, columns: int) -> list[list[int]]:
    """Integers of magnitude at most 2^15 that look random, the first row at the ends."""

    def entry(i: int, j: int) -> int:
        digest = hashlib.sha256(f"{label} {i} {j}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % (2**16 + 1) - 2**15

    ends = [2**15 if j % 2 else -(2**15) for j in range(columns)]
    return [ends, *([entry(i, j) for j in range(columns)] for i in range(1, rows))]


def sign_stream() -> dict[str, Any]:
    """The whole of sign_stream.json."""
    return {
        "description": "Column `rank` of the sign matrix of a seed (hex): bit r is 0 for +1 and 1 for -1; digests are "
        "of the ASCII bits. Y = S Q: digests are of Y as compact JSON. ones: S 1 over ranks 0..n-1.",
        "vectors": [sign_vector(*case) for case in product(SEEDS, RANKS, ROWS)],
        "projections": [
            projection_vector(SEEDS[1], 130, range(40), entries("in order", 40, 3)),
            projection_vector(SEEDS[2], 11, [7, 2**32 + 1, 0, 9000], entries("out of order", 4, 2)),
        ],
        "ones": [
            {"seed": seed.hex(), "k": 9, "n": n, "Y": [row[0] for row in projected(seed, 9, range(n), [[1]] * n)]}
            for seed, n in ((SEEDS[0], 1), (SEEDS[2], 700))
        ],
    }


def bisected(function: Callable[[Decimal], Decimal], aim: Decimal, low: Decimal, high: Decimal) -> Decimal:
    """Where a falling function meets `aim`, by halving an interval of logarithms to `DIGITS` digits."""
    while high - low > Decimal(10) ** -DIGITS:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle.exp()) > aim else (low, middle)
    return ((low + high) / 2).exp()


def zcdp_rho(epsilon: Decimal, delta: Decimal) -> Decimal:
    """The rho whose epsilon(delta) is epsilon (Canonne, Kamath, Steinke 2020, corollary 13), x being alpha - 1.

    At the best order rho x^2 + ln(1 + x) = ln(1/delta), so both are functions of x: there
    epsilon = rho (1 + 2x) - ln(1 + 1/x).
    """

    def rho(x: Decimal) -> Decimal:
        return (-delta.ln() - (1 + x).ln()) / (x * x)

    def found(x: Decimal) -> Decimal:
        return rho(x) * (1 + 2 * x) - (1 + 1 / x).ln()

    most = (1 / delta - 1).ln()  # rho is 0 there
    return rho(bisected(found, epsilon, Decimal(-20), most))


def normal_cdf(x: Decimal) -> Decimal:
    """1/2 + (x - x^3/(2 3) + x^5/(2! 4 5) - ...) / sqrt(2 pi)."""
    term = total = x
    n = 0
    while abs(term) > Decimal(10) ** -(DIGITS + GUARD):
        n += 1
        term *= -x * x / (2 * n)
        total += term / (2 * n + 1)
    return Decimal("0.5") + total / (2 * Decimal(PI)).sqrt()


def gaussian_delta(sigma: Decimal, epsilon: Decimal) -> Decimal:
    """The least delta of noise sigma at sensitivity 1 (Balle, Wang 2018, theorem 8)."""
    near, far = (sign / (2 * sigma) - epsilon * sigma for sign in (1, -1))
    return normal_cdf(near) - epsilon.exp() * normal_cdf(far)


def sparse_entry(seed: bytes, rank: int, k: int) -> list[int]:
    """Row and sign of one column's entry: of AES-256 of rank (12 bytes) || 0 (4 bytes) 64 bits U, then the sign's."""
    key = hashlib.sha256(b"commingle/v1/sparse-mixing" + seed).digest()
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # noqa: S305 - distinct public counters
    block = encrypt(rank.to_bytes(12, "big") + bytes(4))
    return [int.from_bytes(block[:8], "big") * k >> 64, -1 if block[8] >> 7 else 1]


def sparse_mixing() -> dict[str, Any]:
    """Entries of columns of the sparse matrix."""
    entries = [
        {"seed": seed.hex(), "k": k, "ranks": list(RANKS), "entries": [sparse_entry(seed, r, k) for r in RANKS]}
        for seed, k in product(SEEDS, (1, 7, 1029, 1_000_000))
    ]
    said = "Column `rank` of the sparse matrix of a seed (hex) with k rows: row and sign of its one entry."
    return {"description": said, "entries": entries}


def calibration_row(epsilon: float, delta: float) -> dict[str, float | None]:
    """Loss and noise multipliers at unit sensitivity, of exactly these two floats."""
    with localcontext(prec=DIGITS + GUARD):
        e, d = Decimal(epsilon), Decimal(delta)
        rho = zcdp_rho(e, d)
        sigma = 1 / (2 * rho).sqrt()
        analytic = bisected(lambda s: gaussian_delta(s, e), d, (sigma / 3).ln(), sigma.ln())  # at most zCDP's
        classical = (2 * (Decimal("1.25") / d).ln()).sqrt() / e
        return {
            "epsilon": epsilon,
            "delta": delta,
            "rho": float(rho),
            "sigma_zcdp": float(sigma),
            "sigma_analytic": float(analytic),
            "sigma_classical": float(classical) if epsilon <= CLASSICAL_LIMIT else None,
        }


def calibration() -> dict[str, Any]:
    """The whole of calibration.json."""
    return {
        "description": "The zCDP loss rho of (epsilon, delta) and Gaussian noise multipliers for unit L2 sensitivity, "
        f"computed with {DIGITS} digits and rounded to floats; the classical one is proved for epsilon <= 1 only.",
        "rows": [calibration_row(*case) for case in product(EPSILONS, DELTAS)],
    }


def main() -> None:
    """Write all three files."""
    made = (("sign_stream", sign_stream()), ("sparse_mixing", sparse_mixing()), ("calibration", calibration()))
    for name, content in made:
        (HERE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
