"""Proofs about encrypted columns that tell nothing else (docs/proofs/proved-bounds.md).

In order, each step only when all proofs of the one before hold:

1. each owner    of each segment of its rows, when it has encrypted them: they are within their bound, and ciphertexts
                 and key are well formed (`columns.prove_columns`). The last party owns nothing
2. everybody     verifies the proofs of all others (`columns.verify_columns`), then replies (`ring.replies.hide_sums`,
                 `whole_reply`)
3. evaluators    of all replies together: they are evaluations of the columns in the evaluator's own ciphertexts, or
                 of the last party of rows within their bound (`evaluator.prove_replies`)
4. each owner    verifies the replies to itself (`evaluator.verify_replies`), then rounds and opens them
                 (`ring.replies.round_reply`, `open_reply`)

A proof is bytes. Nobody needs a secret to verify it, so a proof that fails shows everybody who sent it. Functions are
pure, and entropy is an argument.

`columns`, `replies`    the statements, as equations about a matrix of small integers
`prover`, `proof`       proving such a statement, by combinations of rows and opened columns, and verifying it
"""
