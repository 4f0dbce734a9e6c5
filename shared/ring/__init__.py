"""Linear encryption over a ring: inner products of columns that stay hidden (docs/proofs/linear-encryption.md).

The owner of columns encrypts them; an evaluator multiplies by columns of its own, adds noise, and replies; the owner
opens inner products plus that noise, and nothing else is told to anybody. In order:

1. the owner    a secret key from 32 bytes that it stores (`encryption.secret_key`), its public key
                (`encryption.public_key`), and its columns block by block (`encryption.encrypt`). One key and one set of
                ciphertexts for each release, ever
2. evaluator    its sums, block by block (`replies.InnerProducts.add`), then one reply (`replies.make_reply`): its
                noise is inside, and a retry sends the bytes that were stored
3. the owner    reads the reply (`replies.open_reply`), adds its own noise, and forgets the key when the release is over

`parameters.Layout` is all of it that is public: sizes, places, and what the random half of each ciphertext is hashed
from. Functions are pure, and entropy is an argument. Loops in C (`kernels.c`) are loaded when something is first
computed: sizes and the check of what others send (`parameters.parse_residues`) do without them.
"""
