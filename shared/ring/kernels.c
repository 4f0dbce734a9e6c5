/* Loops over residues: 32-bit words below a prime below 2^31. A part of `../loops.c`. */

/* The product of x and a root, below the prime; quotient = floor(root 2^32 / prime) (Shoup). */
static inline u4 scaled(u4 x, u4 root, u4 quotient, u4 prime) {
    u4 product = x * root - (u4)((u8)x * quotient >> 32) * prime;
    return least(product, product - prime); /* a negative difference wraps around, and is no minimum */
}

static inline u4 sum(u4 x, u4 y, u4 prime) { return least(x + y, x + y - prime); }
static inline u4 difference(u4 x, u4 y, u4 prime) { return least(x - y, x - y + prime); }

/* (x, y) to (x + root y, x - root y), for the pairs of two rows; their roots are `step` apart, 0 for one and the same. */
static inline __attribute__((always_inline)) void forward_pairs(
    u4 *restrict low, u4 *restrict high, i8 n, const u4 *restrict roots, const u4 *restrict quotients, i8 step, u4 prime
) {
    for (i8 j = 0; j < n; j++) {
        u4 x = low[j], y = scaled(high[j], roots[j * step], quotients[j * step], prime);
        low[j] = sum(x, y, prime);
        high[j] = difference(x, y, prime);
    }
}

/* (x, y) to (x + y, root (x - y)), as above. */
static inline __attribute__((always_inline)) void backward_pairs(
    u4 *restrict low, u4 *restrict high, i8 n, const u4 *restrict roots, const u4 *restrict quotients, i8 step, u4 prime
) {
    for (i8 j = 0; j < n; j++) {
        u4 x = low[j], y = high[j];
        low[j] = sum(x, y, prime);
        high[j] = scaled(difference(x, y, prime), roots[j * step], quotients[j * step], prime);
    }
}

/* Stages of pairs at the distances 4, 2 and 1 are computed on eight rows of n/8, `turned`: neighbours do the same there,
   many at a time. */
static inline void turn(const u4 *restrict row, u4 *restrict turned, i8 eighth) {
    for (i8 j = 0; j < eighth; j++)
        for (i8 k = 0; k < 8; k++) turned[k * eighth + j] = row[8 * j + k];
}

static inline void turn_back(u4 *restrict row, const u4 *restrict turned, i8 eighth) {
    for (i8 j = 0; j < eighth; j++)
        for (i8 k = 0; k < 8; k++) row[8 * j + k] = turned[k * eighth + j];
}

#define STAGE(pairs, half) \
    for (i8 i = 0, each = 4 / half; i < each; i++) \
        for (i8 k = 2 * i * half; k < 2 * i * half + half; k++) \
            pairs(turned + k * eighth, turned + (k + half) * eighth, eighth, roots + power / 8 * each + i, \
                  quotients + power / 8 * each + i, 4 / half, prime)

/* Each row's values at the odd powers of psi, in bit-reversed order, in its place (Cooley, Tukey), n >= 8: at all of
   them, or, as there are p of a longer transform and n divides p, at the first n, which are the roots of x^n - psi^(p / n).

   roots[k] = psi^bitreversed(k), quotients = floor(roots 2^32 / prime). What has n / copies coefficients, a power of two
   and at least 8, is given that often: the first stages would only repeat it. `turned`, (8, n / 8), is overwritten. */
LOOP(ring_forward, "u4[m,n] u4[p] u4[p] u4[8,e] u4 i8")(
    u4 *rows, i8 m, i8 n, const u4 *roots, i8 power, const u4 *quotients, u4 *turned, i8 eighth, u4 prime, i8 copies
) {
    for (u4 *row = rows; row < rows + m * n; row += n) {
        for (i8 groups = copies, half = n / (2 * copies); half > 4; groups *= 2, half /= 2)
            for (i8 i = 0; i < groups; i++)
                forward_pairs(row + 2 * i * half, row + (2 * i + 1) * half, half, roots + power / n * groups + i,
                              quotients + power / n * groups + i, 0, prime);
        turn(row, turned, eighth);
        STAGE(forward_pairs, 4);
        STAGE(forward_pairs, 2);
        STAGE(forward_pairs, 1);
        turn_back(row, turned, eighth);
    }
}

/* The inverse of `forward` but for a factor of n, in place (Gentleman, Sande); roots[k] = psi^-bitreversed(k). */
LOOP(ring_backward, "u4[m,n] u4[p] u4[p] u4[8,e] u4")(
    u4 *rows, i8 m, i8 n, const u4 *roots, i8 power, const u4 *quotients, u4 *turned, i8 eighth, u4 prime
) {
    for (u4 *row = rows; row < rows + m * n; row += n) {
        turn(row, turned, eighth);
        STAGE(backward_pairs, 1);
        STAGE(backward_pairs, 2);
        STAGE(backward_pairs, 4);
        turn_back(row, turned, eighth);
        for (i8 groups = n / 16, half = 8; groups; groups /= 2, half *= 2)
            for (i8 i = 0; i < groups; i++)
                backward_pairs(row + 2 * i * half, row + (2 * i + 1) * half, half, roots + power / n * groups + i,
                               quotients + power / n * groups + i, 0, prime);
    }
}

/* Numbers below prime 2^32 modulo the prime: over 2^32 (Montgomery), times 2^32 = factor; inverse = -1 / prime modulo 2^32,
   quotient = floor(factor 2^32 / prime). */
LOOP(ring_remainders, "u4[n] u8[n] u4 u4 u4 u4")(
    u4 *restrict left, i8 n, const u8 *restrict numbers, u4 prime, u4 inverse, u4 factor, u4 quotient
) {
    for (i8 j = 0; j < n; j++) {
        u4 over = (numbers[j] + (u8)((u4)numbers[j] * inverse) * prime) >> 32;
        left[j] = scaled(over, factor, quotient, prime);
    }
}

/* total += x y, slot by slot, or x y[0] for a `step` of 0; totals stay below prime 2^32. */
static inline __attribute__((always_inline)) void add_slots(
    u8 *restrict total, const u4 *restrict x, const u4 *restrict y, i8 n, i8 step, u4 prime
) {
    u8 full = (u8)prime << 32;
    i8 k = 0, at_once = sizeof(Sums) / sizeof(u8);
    for (; k + at_once <= n; k += at_once) {
        Sums word, product = products(wide(x + k), step ? wide(y + k) : same(*y));
        memcpy(&word, total + k, sizeof word);
        word = reduced(word + product, same(full));
        memcpy(total + k, &word, sizeof word);
    }
    for (; k < n; k++) {
        u8 word = total[k] + (u8)x[k] * y[k * step];
        total[k] = word < word - full ? word : word - full;
    }
}

/* sums[a, b] += sum over s of left[s, a] right[s, b], slot by slot; in pieces of 256, which stay in a core's cache. */
LOOP(ring_add_products, "u8[a,b,n] u4[s,a,n] u4[s,b,n] u4")(
    u8 *sums, i8 lefts, i8 rights, i8 n, const u4 *left, i8 stripes, const u4 *right, u4 prime
) {
    for (i8 start = 0; start < n; start += 256)
        for (i8 a = 0; a < lefts; a++)
            for (i8 b = 0; b < rights; b++)
                for (i8 s = 0; s < stripes; s++)
                    add_slots(sums + (a * rights + b) * n + start, left + (s * lefts + a) * n + start,
                              right + (s * rights + b) * n + start, smaller(256, n - start), 1, prime);
}

/* sums[a, b] += sum over s, t of word t of window a of stripe s times rows[s, b, t], modulo the prime.

   words is (s, groups, N), rows (s, b, L), small; window a begins at L (a modulo width) of group a / width. */
LOOP(ring_add_windows, "i8[a,b] i4[s,g,n] i4[s,b,l] i8 i8")(
    i8 *sums, i8 windows, i8 rights, const i4 *words, i8 stripes, i8 groups, i8 n, const i4 *rows, i8 length, i8 width,
    i8 prime
) {
    for (i8 s = 0; s < stripes; s++)
        for (i8 a = 0; a < windows; a++)
            for (i8 b = 0; b < rights; b++) {
                const i4 *window = words + (s * groups + a / width) * n + length * (a % width);
                const i4 *row = rows + (s * rights + b) * length;
                i8 total = sums[a * rights + b];
                for (i8 t = 0; t < length; t++) total += (i8)window[t] * row[t];
                total %= prime;
                sums[a * rights + b] = total < 0 ? total + prime : total;
            }
}
