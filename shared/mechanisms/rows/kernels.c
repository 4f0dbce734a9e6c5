/* The dense projection by the method of the four Russians (Arlazarov, Dinic, Kronrod, Faradzhev 1970).

   Eight subjects have 256 sums of +-q; the byte that holds their signs for one row of S says which of these to add. All
   sums are integers: of eight at most 2^18 in magnitude, of four such at most 2^20. A part of `../../loops.c`. */

#define LANES 8  /* columns that one instruction adds */
#define TABLES 4 /* looked up together: 32 KB, which stay in a core's nearest cache */

typedef i4 Entries __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Bit s of each byte of stream i becomes bit i of that byte of bits s, for eight streams (8, words). */
static void transpose_bits(const u8 *restrict streams, u8 *restrict bits, i8 words) {
    for (i8 w = 0; w < 8 * words; w++) bits[w] = streams[w];
    for (i8 step = 1; step < 8; step *= 2) { /* keeps the bits whose number lacks it: 0x55.., 0x33.., 0x0F.. */
        u8 mask = UINT64_MAX / (((u8)1 << step) + 1);
        for (i8 i = 0; i < 8; i++) {
            if (i & step) continue;
            u8 *restrict low = bits + i * words, *restrict high = bits + (i + step) * words;
            for (i8 w = 0; w < words; w++) {
                u8 swapped = ((low[w] >> step) ^ high[w]) & mask;
                high[w] ^= swapped;
                low[w] ^= swapped << step;
            }
        }
    }
}

/* table[c] = sum over eight subjects i of +-q[i], minus where bit i of c is 1. */
static void fill_table(const Entries *restrict q, Entries *restrict table) {
    table[0] = q[0] + q[1] + q[2] + q[3] + q[4] + q[5] + q[6] + q[7];
    for (i8 i = 0; i < 8; i++)
        for (i8 c = 0, size = (i8)1 << i; c < size; c++) table[size + c] = table[c] - 2 * q[i];
}

#if defined(__AVX512F__)
typedef i8 Totals __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
static inline void add_entries(Totals *sums, Entries x) { *sums += __builtin_convertvector(x, Totals); }
#else
typedef i8 Totals __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
static inline void add_entries(Totals *sums, Entries x) { /* in halves, which compilers widen at once */
    sums[0] += __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), Totals);
    sums[1] += __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), Totals);
}
#endif

/* sums[p] += the entries of four tables that byte p of four codes names. */
static void add_looked_up(i8 *restrict sums, const u1 *restrict codes, const Entries *restrict table, i8 rows, i8 apart) {
    for (i8 p = 0; p < rows; p++) {
        Entries looked_up = table[codes[p]] + table[256 + codes[apart + p]] + table[512 + codes[2 * apart + p]]
            + table[768 + codes[3 * apart + p]];
        add_entries((Totals *)(sums + LANES * p), looked_up);
    }
}

/* Adds the products of a block of subjects and of rows of S.

   streams (m / 8, 8, words): of each subject the signs of 64 words rows. q (panels, m, LANES). sums (panels, 8, k / 8
   LANES): row 8 p + 7 - s of Y is at [:, s, p LANES :], and the block's first row is 8 first. m is a multiple of 8
   TABLES. bits and table are overwritten. */
LOOP(rows_add_block, "u8[g,8,w] i4[p,m,8] i8[p,8,k] u8[4,8,w] i4[8192] i8")(
    const u8 *streams, i8 groups, i8 words, const i4 *q, i8 panels, i8 m, i8 *sums, i8 k, u8 *bits, i4 *table, i8 first
) {
    for (i8 group = 0; group < groups; group += TABLES) {
        for (i8 t = 0; t < TABLES; t++) transpose_bits(streams + (group + t) * 8 * words, bits + t * 8 * words, words);
        for (i8 panel = 0; panel < panels; panel++) {
            for (i8 t = 0; t < TABLES; t++)
                fill_table((const Entries *)(q + (panel * m + 8 * (group + t)) * LANES), (Entries *)table + 256 * t);
            for (i8 s = 0; s < 8; s++)
                add_looked_up(sums + (panel * 8 + s) * k + LANES * first, (const u1 *)(bits + s * words),
                              (const Entries *)table, 8 * words, 64 * words);
        }
    }
}
