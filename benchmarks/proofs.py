"""A whole exchange of encrypted columns with its proofs (`shared/ring`, `shared/proving`): seconds, bytes and memory.

python -m benchmarks.proofs [--n N] [--columns D] [--parties M] [--quick] [--json FILE]

M parties of D columns each: all encrypt and prove their columns, verify the others', reply to each other, prove and
verify the replies, and open. All sides are in this process, no network. Openings must be exact. Traffic is what all
parties send to the coordinator and what each of the others is sent. Loading the kernels is timed by itself.
"""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.ring import Clock, _peak_megabytes
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.code import kernels
from commingle.shared.proving.columns import Columns
from commingle.shared.proving.evaluator import Encrypted, Replies, prove_replies, verify_replies
from commingle.shared.proving.lengths import column_sizes
from commingle.shared.proving.owner import prove_columns, verify_columns
from commingle.shared.proving.replies import Reply
from commingle.shared.ring.encryption import SecretKey, encrypt, public_key, secret_key
from commingle.shared.ring.evaluation import InnerProducts
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.randomness import SEED_BYTES, Entropy, keystream
from commingle.shared.ring.replies import HiddenSums, hide_sums, open_reply, round_reply, whole_reply

BOUND = 4**14
STEPS = ("encrypt", "prove columns", "verify columns", "evaluate", "prove replies", "verify replies", "open")


@dataclass
class Member:
    """One party: its rows, its key, and what it sends."""

    layout: Layout
    rows: NDArray[np.int64]
    key: SecretKey
    public_key: bytes
    blocks: list[bytes]
    entropy: Entropy = field(repr=False)

    def statements(self) -> list[Columns]:
        """About each segment of its columns."""
        starts, found = [start for start, _ in self.layout.blocks()], []
        for start, stop in segments(self.layout):
            held = [part for first, part in zip(starts, self.blocks, strict=True) if start <= first < stop]
            sizes = column_sizes(self.layout)
            found.append(Columns(Ciphertexts(self.layout, (start, stop), self.public_key, held, sizes), BOUND))
        return found


def measure(n: int, columns: int, parties: int) -> dict[str, Any]:
    """All figures of one run; SystemExit where an opening is not exact."""
    clock = Clock()
    with clock.step("load"):
        kernels()
    held, sent = (
        _peak_megabytes(),
        dict.fromkeys(("ciphertexts", "proofs of columns", "replies", "proofs of replies"), 0),
    )
    members = [_encrypt(n, columns, number, clock) for number in range(parties)]
    for member in members:
        sent["ciphertexts"] += sum(map(len, member.blocks)) + len(member.public_key)
        sent["proofs of columns"] += _prove_columns(member, parties, clock)
    for number, member in enumerate(members):
        others = [other for k, other in enumerate(members) if k != number]
        hidden = [_evaluate(member, other, clock) for other in others]
        statement, proofs = _prove_replies(member, others, hidden, clock)
        sent["replies"] += sum(len(column) for reply in statement.replies for column in reply.columns)
        sent["proofs of replies"] += sum(map(len, proofs))
        for k, other in enumerate(others):
            with clock.step("verify replies"):
                verify_replies(replace(statement), proofs)
            opened, noise = _open(other, statement.replies[k], clock), np.array([each.noise for each in hidden[k]]).T
            if not np.array_equal(opened, other.rows.T @ member.rows + noise):
                raise SystemExit("openings are not exact")
    total, uploaded = sum(clock.seconds[name] for name in STEPS), sum(sent.values())
    return {
        "n": n,
        "columns": columns,
        "parties": parties,
        "cpu": clock.seconds,
        "total": total,
        "sent": sent,
        "traffic": uploaded * parties,
        "megabytes": _peak_megabytes() - held,
    }


def _encrypt(n: int, columns: int, number: int, clock: Clock) -> Member:
    drawn = np.random.default_rng(number).normal(size=(n, columns))
    rows = np.trunc(drawn / np.linalg.norm(drawn, axis=1)[:, None] * BOUND**0.5).astype(np.int64)
    layout, entropy = Layout(f"benchmark {number}".encode(), n, columns), keystream(os.urandom(SEED_BYTES))
    with clock.step("encrypt"):
        key = secret_key(entropy(SEED_BYTES), layout.parameters)
        published = public_key(key, layout, entropy)
        blocks = [encrypt(key, layout, block, rows[slice(*block)], entropy) for block in layout.blocks()]
    return Member(layout, rows, key, published, blocks, entropy)


def _prove_columns(member: Member, parties: int, clock: Clock) -> int:
    """How many bytes; every other party verifies them."""
    count = 0
    for statement in member.statements():
        start, stop = statement.ciphertexts.segment
        with clock.step("prove columns"):
            proof = prove_columns(statement, member.key, member.rows[start:stop], member.entropy)
        count += len(proof)
        for _ in range(parties - 1):
            with clock.step("verify columns"):
                verify_columns(statement, proof)
    return count


def _evaluate(member: Member, owner: Member, clock: Clock) -> list[HiddenSums]:
    with clock.step("evaluate"):
        found, count = InnerProducts(owner.layout, member.layout.columns), owner.layout.columns * member.layout.columns
        for block, received in zip(owner.layout.blocks(), owner.blocks, strict=True):
            found.add(received, member.rows[slice(*block)])
        noise = rounded_gaussian(2**30, count).reshape(owner.layout.columns, -1)
        return list(hide_sums(found, owner.public_key, noise, member.entropy))


def _prove_replies(
    member: Member, owners: list[Member], hidden: list[list[HiddenSums]], clock: Clock
) -> tuple[Replies, list[bytes]]:
    with clock.step("prove replies"):
        replies = tuple(
            Reply(owner.layout, owner.public_key, owner.blocks, [whole_reply(owner.layout, each) for each in made])
            for owner, made in zip(owners, hidden, strict=True)
        )
        statement = Replies(member.layout, Encrypted(member.public_key, member.blocks), replies)
        return statement, prove_replies(statement, member.key, member.rows, hidden, member.entropy)


def _open(owner: Member, reply: Reply, clock: Clock) -> NDArray[np.int64]:
    with clock.step("open"):
        rounded = [round_reply(owner.layout, column) for column in reply.columns]
        return np.stack([open_reply(owner.key, owner.layout, each, largest=2**63 - 1) for each in rounded], axis=1)


@click.command()
@click.option("--n", type=int, default=100_000, show_default=True, help="Rows.")
@click.option("--columns", type=int, default=10, show_default=True, help="Of each party.")
@click.option("--parties", type=int, default=3, show_default=True)
@click.option("--quick", is_flag=True, help="Few rows, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, n: int, columns: int, parties: int, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    report = measure(*((2000, 2, 2) if quick else (n, columns, parties)))
    print(f"{report['n']} rows, {report['parties']} parties of {report['columns']} columns    CPU seconds of all")
    for name, seconds in report["cpu"].items():
        print(f"  {name:<44}{seconds:>12.3f}")
    print(f"  {'all but loading':<44}{report['total']:>12.3f}")
    for name, count in report["sent"].items():
        print(f"  {name + ', sent by all (MB)':<44}{count / 1e6:>12.2f}")
    print(f"  {'sent and received, all (MB)':<44}{report['traffic'] / 1e6:>12.2f}")
    print(f"  {'memory above kernels, all parties at once':<44}{report['megabytes']:>12.0f}")
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
