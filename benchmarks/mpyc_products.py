"""Products X_i^T X_j of three parties' integer matrices: our exchange and MPyC, on the same matrices in the same run.

python -m benchmarks.mpyc_products [--n N] [--columns D] [--quick] [--json FILE]

Ours: encrypted columns, replies and blocks, all signed and checked, one role after the other in this process, no
network, loading the kernels not counted; it computes the parties' own blocks and column sums too. MPyC: three processes
that talk TCP on this machine: input sharing, products, opening to all; neither starting nor connecting them counts.
Both must give the exact products. The ratio is MPyC over ours, of CPU seconds of all roles together and of seconds by
the clock.

MPyC listens on all interfaces and unpickles what it is sent: run this where nobody else can connect.
"""

import importlib.util
import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.exchanged import Integers, approved
from commingle.shared.ring.residues import kernels

PARTIES = 3
_TIMEOUT_SECONDS = 900


def matrix(party: int, n: int, columns: int) -> Integers:
    """A party's rows (n x columns): fixed point of 14 bits in [-1, 1]."""
    return np.random.default_rng([7, party]).integers(-(2**14), 2**14, (n, columns), endpoint=True)


def ours(n: int, columns: int) -> dict[str, Any]:
    """The exchange, timed; SystemExit where a product is not exact."""
    matrices, exchanging = [matrix(party, n, columns) for party in range(PARTIES)], approved(n, columns, PARTIES)
    kernels()
    wall, cpu = time.perf_counter(), time.process_time()
    found = exchanging.products(matrices)
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    whole = np.hstack(matrices)
    if not np.array_equal(found, whole.T @ whole):
        raise SystemExit("our products are not exact")
    return {**seconds, "bytes": exchanging.bytes_sent, "steps": exchanging.seconds}


def mpyc(n: int, columns: int) -> dict[str, Any]:
    """MPyC, timed by itself; SystemExit where it is absent, fails or a product is not exact."""
    if importlib.util.find_spec("mpyc") is None:
        raise SystemExit("MPyC is not installed. It is in the dev group of pyproject.toml: pip install mpyc")
    found = _run_parties(n, columns)
    matrices = [matrix(party, n, columns) for party in range(PARTIES)]
    exact = [(matrices[i].T @ matrices[j]).tolist() for i, j in combinations(range(PARTIES), 2)]
    if any(result["products"] != exact for result in found):
        raise SystemExit("MPyC's products are not exact")
    return {
        "wall": max(result["wall"] for result in found),
        "cpu": sum(result["cpu"] for result in found),
        "bytes": sum(result["bytes"] for result in found),
    }


def _run_parties(n: int, columns: int) -> list[dict[str, Any]]:
    where = [word for port in _free_ports() for word in ("-P", f"localhost:{port}")]
    command = [sys.executable, "-m", "benchmarks.mpyc_party", "--no-log", *where]
    with ExitStack() as stack:
        parties = []
        for index in range(PARTIES):
            words = [*command, "-I", str(index), str(n), str(columns)]
            party = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
            stack.callback(party.kill)  # the others wait for ever for one that failed
            parties.append(party)
        try:
            return [json.loads(party.communicate(timeout=_TIMEOUT_SECONDS)[0]) for party in parties]
        except (subprocess.TimeoutExpired, ValueError):
            raise SystemExit("an MPyC party failed or did not end") from None


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(PARTIES)]
        return [int(each.getsockname()[1]) for each in sockets]


@click.command()
@click.option("--n", type=int, default=20_000, show_default=True, help="Rows.")
@click.option("--columns", type=int, default=4, show_default=True, help="Of each of the three parties.")
@click.option("--quick", is_flag=True, help="Few rows, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, n: int, columns: int, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    n, columns = (500, 2) if quick else (n, columns)
    both = {"ours": ours(n, columns), "mpyc": mpyc(n, columns)}
    ratio = {unit: both["mpyc"][unit] / both["ours"][unit] for unit in ("cpu", "wall", "bytes")}
    print(f"{n} rows, {PARTIES} x {columns} columns    CPU seconds    seconds    bytes sent")
    for name, used in both.items():
        print(f"  {name:<30}{used['cpu']:>12.3f}{used['wall']:>11.3f}{used['bytes']:>14}")
    print(f"  {'MPyC over ours':<30}{ratio['cpu']:>12.1f}{ratio['wall']:>11.1f}{ratio['bytes']:>14.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps({"n": n, "columns": columns, **both, "ratio": ratio}, indent=2))


if __name__ == "__main__":
    main()
