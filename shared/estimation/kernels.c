/* Weighted rows of docs/odds-ratios.md. A part of `../loops.c`. */

/* sums[a, b] += weights[i] for features a <= b that row i has, which are features[starts[i] : starts[i + 1]] in order.
   Nothing is done but additions in one order, so every compiler makes the same bits. */
LOOP(estimation_add_pairs, "f8[f,f] i4[s] i4[m] f8[n]")(
    f8 *sums, i8 size, const i4 *starts, i8 rows, const i4 *features, i8 entries, const f8 *weights, i8 weighted
) {
    (void)entries, (void)weighted;
    for (i8 i = 0; i < rows - 1; i++)
        for (i8 a = starts[i]; a < starts[i + 1]; a++) {
            f8 *row = sums + features[a] * size;
            for (i8 b = a; b < starts[i + 1]; b++) row[features[b]] += weights[i];
        }
}
