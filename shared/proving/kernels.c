/* Loops over rows of residues, as those of `../ring/kernels.c`. A part of `../loops.c`. */

/* Each number times a factor, in its place; quotient = floor(factor 2^32 / prime). */
LOOP(proving_scale, "u4[m,n] u4 u4 u4")(u4 *rows, i8 m, i8 n, u4 factor, u4 quotient, u4 prime) {
    for (i8 j = 0; j < m * n; j++) rows[j] = scaled(rows[j], factor, quotient, prime);
}

/* columns[k] is column first + k of rows. Sixteen rows at a time stay in a core's cache. */
LOOP(proving_transpose, "u4[m,n] i8 u4[c,m]")(
    const u4 *restrict rows, i8 m, i8 n, i8 first, u4 *restrict columns, i8 count
) {
    for (i8 start = 0; start < m; start += 16)
        for (i8 k = 0; k < count; k++)
            for (i8 r = start; r < smaller(start + 16, m); r++) columns[k * m + r] = rows[r * n + first + k];
}

/* sums[a] += sum over i of weights[a, i] rows[i]; in pieces of 512 columns, which stay in a core's cache. */
LOOP(proving_add_combinations, "u8[a,n] u4[a,m] u4[m,n] u4")(
    u8 *sums, i8 count, i8 n, const u4 *weights, i8 m, const u4 *rows, u4 prime
) {
    for (i8 start = 0; start < n; start += 512)
        for (i8 i = 0; i < m; i++)
            for (i8 a = 0; a < count; a++)
                add_slots(sums + a * n + start, rows + i * n + start, weights + a * m + i, smaller(512, n - start), 0,
                          prime);
}

/* x^2 / 2^32 modulo the prime, below 2 prime (Montgomery); inverse = -1 / prime modulo 2^32. */
static inline void square(u4 *restrict squares, const u4 *restrict row, i8 n, u4 prime, u4 inverse) {
    for (i8 j = 0; j < n; j++) {
        u8 whole = (u8)row[j] * row[j];
        squares[j] = (u4)((whole + (u8)((u4)whole * inverse) * prime) >> 32);
    }
}

/* sums[a] += sum over i of weights[a, i] rows[i]^2 / 2^32. The array of squares is overwritten: as many columns as stay in
   a core's cache. */
LOOP(proving_add_squares, "u8[a,n] u4[a,m] u4[m,n] u4[p] u4 u4")(
    u8 *sums, i8 count, i8 n, const u4 *weights, i8 m, const u4 *rows, u4 *squares, i8 piece, u4 prime, u4 inverse
) {
    for (i8 start = 0; start < n; start += piece)
        for (i8 i = 0; i < m; i++) {
            i8 columns = smaller(piece, n - start);
            square(squares, rows + i * n + start, columns, prime, inverse);
            for (i8 a = 0; a < count; a++)
                add_slots(sums + a * n + start, squares, weights + a * m + i, columns, 0, prime);
        }
}

/* sums[a] += sum over s of left[s, a] right[s, a], or right[s, 0] if there is one. */
LOOP(proving_add_products, "u8[a,n] u4[s,a,n] u4[s,b,n] u4")(
    u8 *sums, i8 lefts, i8 n, const u4 *left, i8 stripes, const u4 *right, i8 rights, u4 prime
) {
    for (i8 s = 0; s < stripes; s++)
        for (i8 a = 0; a < lefts; a++)
            add_slots(sums + a * n, left + (s * lefts + a) * n, right + (s * rights + a % rights) * n, n, 1, prime);
}
