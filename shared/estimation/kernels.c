/* Weighted rows of docs/design/inference.md, and paths of services/analysis. A part of `../loops.c`. */

/* sums[a, b] += weights[i] for features a <= b that row i has, which are features[starts[i] : starts[i + 1]] in order.
   Nothing is done but additions in one order, so every compiler makes the same bits. As many lines of sums at a time as
   half a megabyte holds: all of them are not near the processor. */
LOOP(estimation_add_pairs, "f8[f,f] i4[s] i4[m] f8[n]")(
    f8 *sums, i8 size, const i4 *starts, i8 rows, const i4 *features, i8 entries, const f8 *weights, i8 weighted
) {
    (void)entries, (void)weighted;
    i8 lines = size < 65536 ? 65536 / (size + 1) + 1 : 1;
    for (i8 low = 0; low < size; low += lines)
        for (i8 i = 0; i < rows - 1; i++) {
            i8 a = starts[i], end = starts[i + 1];
            while (a < end && features[a] < low) a++;
            for (; a < end && features[a] < low + lines; a++) {
                f8 *row = sums + features[a] * size;
                for (i8 b = a; b < end; b++) row[features[b]] += weights[i];
            }
        }
}

/* Sweeps of coordinate descent over slopes b of min 1/2 b^T R b - r^T b + l |b|_1 + d |b|^2 / 2 with l, d = penalty:

       x_j = left_j + R_jj b_j,   b_j = sign(x_j) max(|x_j| - l, 0) / (R_jj + d),   left = r - R b

   (Friedman, Hastie and Tibshirani 2010). */
LOOP(estimation_descend, "f8[q,q] f8[q] f8[q] f8[2] i8")(
    const f8 *R, i8 size, f8 *b, f8 *left, const f8 *penalty, i8 sweeps
) {
    while (sweeps-- > 0)
        for (i8 j = 0; j < size; j++) {
            const f8 *row = R + j * size;
            f8 x = left[j] + row[j] * b[j], above = (x < 0 ? -x : x) - penalty[0], scale = row[j] + penalty[1];
            f8 now = above > 0 && scale > 0 ? (x < 0 ? -above : above) / scale : 0, change = now - b[j];
            if (change == 0) continue;
            b[j] = now;
            for (i8 k = 0; k < size; k++) left[k] -= change * row[k];
        }
}
