"""Products X^T Y of two holders' integers: our encrypted inner products and SPU's Cheetah, in one run.

python -m benchmarks.spu_products --python E/bin/python [--n N] [--columns D] [--json FILE]

E is an environment of its own, as SPU wants an older NumPy: python3.11 -m venv E && E/bin/pip install spu. Both run in
one process each, SPU's two parties as threads. Both give the exact products; ours carry noise, SPU's are opened as they
are. Traffic of SPU is what it logs of its ciphertexts.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import click

from benchmarks.ring import measure

_PARTIES = """
import resource, sys, time
import jax, json, numpy as np, spu
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import spu.utils.simulation as simulation
n, columns = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(n)
x, y = (rng.integers(-(2**14), 2**14, (n, columns), endpoint=True) for _ in range(2))
config = spu.RuntimeConfig(protocol=spu.ProtocolKind.CHEETAH, field=spu.FieldType.FM64)
product = simulation.sim_jax(simulation.Simulator(2, config), lambda a, b: jnp.matmul(a.T, b))
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
start = time.process_time()
found = np.asarray(product(x, y))
cpu = time.process_time() - start
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - held
print(json.dumps({"exact": bool(np.array_equal(found, x.T @ y)), "cpu": cpu, "megabytes": grown}))
"""
_TRAFFIC = re.compile(r"Recv ([0-9.]+) ([KMG]iB), Response ([0-9.]+) ([KMG]iB)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIMEOUT_SECONDS = 1800


def traffic_of(log: str) -> float:
    """Bytes of all ciphertexts either way that a log of Cheetah's products tells of."""
    found = _TRAFFIC.findall(log)
    return sum(float(sent) * _UNITS[unit] + float(back) * _UNITS[other] for sent, unit, back, other in found)


def spu(python: Path, n: int, columns: int) -> dict[str, Any]:
    """SPU, timed by itself; SystemExit where it fails or its products are not exact."""
    command = [str(python), "-c", _PARTIES, str(n), str(columns)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"SPU failed: {done.stderr[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not report.pop("exact"):
        raise SystemExit("SPU's products are not exact")
    return {**report, "bytes": traffic_of(done.stdout + done.stderr)}


@click.command()
@click.option("--python", type=click.Path(exists=True, path_type=Path), required=True, help="Of SPU's environment.")
@click.option("--n", type=int, default=100_000, show_default=True, help="Rows.")
@click.option("--columns", type=int, default=10, show_default=True, help="Of each holder.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, python: Path, n: int, columns: int, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    own, peer = measure(n, columns), spu(python, n, columns)
    ours = {"cpu": own["total"], "megabytes": own["megabytes"], "bytes": own["sent"] + own["reply"]}
    print(f"{n} rows, {columns} x {columns} columns     ours         SPU   SPU over ours")
    for name, unit in (("cpu", "CPU seconds"), ("bytes", "bytes"), ("megabytes", "MB above tables")):
        print(f"  {unit:<24}{ours[name]:>12.4g}{peer[name]:>12.4g}{peer[name] / max(ours[name], 1e-9):>10.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps({"n": n, "columns": columns, "ours": ours, "spu": peer}, indent=2))


if __name__ == "__main__":
    main()
