import sys
from pathlib import Path

import pytest

from benchmarks.spu_products import spu, traffic_of

LOG = """
[info] [cheetah_dot.cc:310] CheetahDot uses 3@2 modulus 8192 degree for 64 bit ring (packing=enabled)
[info] [cheetah_dot.cc:475] 1@4x20000x4 => 4x2048x1 Recv 1.5 MiB, Response 512 KiB Pack 45.089 ms (pack_lwes)
[info] [cheetah_dot.cc:475] 1@4x20000x4 => 4x2048x1 Recv 1.5 MiB, Response 512 KiB Pack 53.75 ms (pack_lwes)
"""


def test_traffic_is_what_both_parties_log() -> None:
    assert traffic_of(LOG) == 4 * 2**20


@pytest.mark.slow
def test_environment_without_spu_ends_the_benchmark_and_says_why() -> None:
    with pytest.raises(SystemExit, match="SPU failed"):
        spu(Path(sys.executable), 10, 2)
