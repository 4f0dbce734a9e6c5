"""A proof that fails (`ProofError`): the release ends, and its sender is named.

Arguments outside their domain, and statements that are false where they are to be proved, are faults of a caller inside
Commingle, and plain ValueErrors (`DomainError` of `shared/ring`).
"""

from commingle.shared.errors import CommingleError


class ProofError(CommingleError):
    """A proof that fails. Anybody who has the statement and the bytes finds the same.

    `failed` is the check that did: `size`, `residues`, `sums`, `total`, `commitment`, `code`, `linear` or `quadratic`.
    """

    code = "proof"

    def __init__(self, failed: str) -> None:
        super().__init__(
            f"a proof about encrypted columns fails: {failed}",
            remedy="Its sender made it wrongly or breaks the rules. End the release, and keep the proof: it shows who.",
        )
        self.failed = failed
