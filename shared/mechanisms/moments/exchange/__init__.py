"""The exchange of a moments release (docs/design/exchange.md): what happens between approval and upload.

Of two parties, the one that comes first in the spec owns the columns that are encrypted, the other evaluates. Each step
happens once per release and party; a retry sends stored bytes:

1. encrypt   a party, after its debit: its rows under a key of this release alone, a proof that they are within their
             bound, and the sums of a first stage (`messages.ColumnsStatement`, `products.encrypted_columns`). The
             table is never read again. Nobody multiplies the last party's columns, so it encrypts none
2. reply     a party, once all have sent columns and their proofs hold (`products.verify_bounds`): inner products of its
             own with those of each party before it, its noise inside, and a proof of that (`products.reply_pieces`);
             the last party proves with it that its rows are within their bound
3. submit    a party, once all have replied and the proofs hold (`products.verify_reply`): opens what it was sent
             (`products.open_part`), adds its own block and its noise (`products.submission`), and signs and uploads
             that as any other block

Where a spec says that bounds are trusted there are no proofs. The coordinator relays all of it and can read none.
Functions are pure; entropy is passed in.
"""
