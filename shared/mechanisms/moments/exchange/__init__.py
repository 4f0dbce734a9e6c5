"""The exchange of a moments release (docs/proofs/moments.md): what happens between approval and upload.

The order of steps, each of which happens once per release, party and coordinator; a retry sends stored bytes:

1. approve   every party, with a round key of this release alone (`sealing.RoundKey`)
2. deal      the coordinator, once all have approved: `deal.deal`; a party opens its package: `deal.open_package`
3. mask      a party, after its debit: U = X - A, sealed to every party and to itself: `mask.MaskSealer`. From here on
             its rows are U + A; the table is never read again
4. agree     a party reads every mask (`mask.open_secret`, `mask.MaskReader`), checks it (`mask.check_commitment`),
             signs what it has seen (`agreement.countersignature`), and waits until all have (`agreement.agreed`)
5. submit    `submission.share` plus `submission.mask` plus noise is the block that is signed and uploaded as any other

Functions are pure but for HPKE, which draws its ephemeral keys from the operating system; other entropy is passed in.
"""
