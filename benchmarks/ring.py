"""Inner products of encrypted columns (`shared/ring`) beside NumPy's product of the same integers, in one run.

python -m benchmarks.ring [--n N] [--columns D] [--quick] [--json FILE]

One owner, one evaluator, each with D columns; both sides in this process, block by block, no network. Products must be
exact. The ratio is CPU seconds of all steps over those of `X.T @ Y` in int64. Loading the kernels is timed by itself.
Transforms are of N = 8192 modulo one prime, the least of some runs of many, to stand beside those of other libraries
(docs/moments-cost.md).
"""

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.ring.encryption import encrypt, public_key, secret_key
from commingle.shared.ring.evaluation import InnerProducts
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.parameters import ENTRY_LIMIT, STANDARD
from commingle.shared.ring.randomness import SEED_BYTES, keystream
from commingle.shared.ring.replies import make_reply, open_reply
from commingle.shared.ring.residues import backward, forward, kernels

STEPS = ("key", "encrypt", "evaluate", "reply", "open")


@dataclass
class Clock:
    """CPU seconds of this process by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def measure(n: int, columns: int) -> dict[str, Any]:
    """All figures of one run; SystemExit where a product is not exact."""
    clock, rng = Clock(), np.random.default_rng(n)
    x, y = (rng.integers(-ENTRY_LIMIT, ENTRY_LIMIT, (n, columns), endpoint=True) for _ in range(2))
    with clock.step("load"):
        kernels()
    held, noise = _peak_megabytes(), rounded_gaussian(2**30, columns * columns).reshape(columns, columns)
    opened, sizes = _exchange(x, y, noise, clock)
    grown = _peak_megabytes() - held
    with clock.step("numpy"):
        exact = x.T @ y
    if not np.array_equal(opened, exact + noise):
        raise SystemExit("products are not exact")
    total = sum(clock.seconds[name] for name in STEPS)
    ratio = total / clock.seconds["numpy"]
    return {
        "n": n,
        "columns": columns,
        "cpu": clock.seconds,
        "total": total,
        "ratio": ratio,
        "megabytes": grown,
        "transforms": transforms(),
        **sizes,
    }


def transforms(rows: int = 256, runs: int = 20) -> dict[str, float]:
    """CPU microseconds of a transform, there and back."""
    degree, prime = STANDARD.degree, STANDARD.primes[0]
    polynomials = np.random.default_rng(0).integers(0, prime, (rows, degree), np.uint32)
    found = {"forward": np.inf, "backward": np.inf}
    for _ in range(runs):
        start = time.process_time()
        forward(polynomials, prime)
        middle = time.process_time()
        backward(polynomials, prime)
        for name, seconds in (("forward", middle - start), ("backward", time.process_time() - middle)):
            found[name] = min(found[name], seconds / rows * 1e6)
    return found


def _exchange(
    x: NDArray[np.int64], y: NDArray[np.int64], noise: NDArray[np.int64], clock: Clock
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """What the owner of x opens, and how many bytes went either way. One block of ciphertexts is held at a time."""
    layout, entropy, sent = Layout(b"benchmark", *x.shape), keystream(os.urandom(SEED_BYTES)), 0
    with clock.step("key"):
        key = secret_key(os.urandom(SEED_BYTES), layout.parameters)
        published = public_key(key, layout, entropy)
    found = InnerProducts(layout, y.shape[1])
    for start, stop in layout.blocks():
        with clock.step("encrypt"):
            block = encrypt(key, layout, (start, stop), x[start:stop], entropy)
        with clock.step("evaluate"):
            found.add(block, y[start:stop])
        sent += len(block)
    with clock.step("reply"):
        replies = list(make_reply(found, published, noise, entropy))
    with clock.step("open"):
        opened = np.stack([open_reply(key, layout, reply, largest=2**63 - 1) for reply in replies], axis=1)
    return opened, {"sent": sent + len(published), "reply": sum(map(len, replies))}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@click.command()
@click.option("--n", type=int, default=100_000, show_default=True, help="Rows.")
@click.option("--columns", type=int, default=10, show_default=True, help="Of the owner, and of the evaluator.")
@click.option("--quick", is_flag=True, help="Few rows, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, n: int, columns: int, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    report = measure(*((2000, 3) if quick else (n, columns)))
    print(f"{report['n']} rows, {report['columns']} x {report['columns']} columns             CPU seconds")
    for name, seconds in report["cpu"].items():
        print(f"  {name:<44}{seconds:>12.3f}")
    print(f"  {'all but loading, over numpy':<44}{report['total']:>12.3f}{report['ratio']:>8.1f}")
    print(f"  {'sent, reply (MB)':<44}{report['sent'] / 1e6:>12.2f}{report['reply'] / 1e6:>8.2f}")
    print(f"  {'memory above tables and kernels (MB)':<44}{report['megabytes']:>12.0f}")
    for name, microseconds in report["transforms"].items():
        print(f"  {f'{name} transform (microseconds)':<44}{microseconds:>12.1f}")
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
