"""A file that claims more than it holds, as coverage-guided fuzzing found it."""

import pytest

from commingle.shared.documents.errors import VerificationError
from commingle.shared.release.matrix import decode_matrix
from tests.tools.fuzz_targets import Release


def test_row_group_that_claims_billions_of_rows_is_refused_before_it_is_read() -> None:
    release = Release()
    rows, offset = b"\x16\x20", b"\x26\x08\x16"  # thrift: num_rows = 16, file_offset = 4, and a number of bytes
    assert release.matrix.count(rows + offset) == 1
    claimed = release.matrix.replace(rows + offset, b"\x16\xe0\xd9\xf7\xea")
    with pytest.raises(VerificationError, match="another shape"):
        decode_matrix(release.spec, claimed)
