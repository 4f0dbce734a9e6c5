/* The loops that NumPy has no fast words for, as one library; `loops.py` calls them.

   LOOP(name, takes)(...) is a function that Python calls as `loops("room").name`. `takes` says what with, separated by
   spaces, and the loader holds every call against it: `u4[m,8]` is a C-contiguous array of NumPy's type u4 with m rows
   of 8, where each letter is one number throughout; `u4` and `i8` are integers. The function has a pointer for each
   array, which the numbers follow that its letters name for the first time. It allocates nothing and cannot fail.

   Built once for each level of processor that hatch_build.py names: `level` is the highest that this processor has. */

#include <stdint.h>
#include <string.h>
#if defined(__SSE4_2__)
#include <immintrin.h>
#endif

typedef uint8_t u1;
typedef uint32_t u4;
typedef uint64_t u8;
typedef int32_t i4;
typedef int64_t i8;
typedef double f8;

#define JOINED(name, level) name##_##level
#define AT(name, level) JOINED(name, level)
#define TAKES(name, level) JOINED(name, level##_takes)
#define TAKES_AT(name, level) TAKES(name, level)
#define LOOP(name, takes) \
    const char *const TAKES_AT(name, LEVEL) = takes; \
    void AT(name, LEVEL)

/* Sums of products of words, a few at once: compilers that see the same in a loop take twice as long. */
#if defined(__AVX512F__)
typedef __m512i Sums;
static inline Sums wide(const u4 *x) { return _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)x)); }
static inline Sums same(u8 x) { return _mm512_set1_epi64((i8)x); }
static inline Sums products(Sums x, Sums y) { return _mm512_mul_epu32(x, y); }
static inline Sums reduced(Sums x, Sums full) { return _mm512_min_epu64(x, _mm512_sub_epi64(x, full)); }
#elif defined(__AVX2__)
typedef __m256i Sums;
static inline Sums wide(const u4 *x) { return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)x)); }
static inline Sums same(u8 x) { return _mm256_set1_epi64x((i8)x); }
static inline Sums products(Sums x, Sums y) { return _mm256_mul_epu32(x, y); }
static inline Sums reduced(Sums x, Sums full) {
    Sums top = same((u8)1 << 63), less = _mm256_cmpgt_epi64(_mm256_xor_si256(full, top), _mm256_xor_si256(x, top));
    return _mm256_sub_epi64(x, _mm256_andnot_si256(less, full));
}
#elif defined(__SSE4_2__)
typedef __m128i Sums;
static inline Sums wide(const u4 *x) { return _mm_cvtepu32_epi64(_mm_loadl_epi64((const __m128i *)x)); }
static inline Sums same(u8 x) { return _mm_set1_epi64x((i8)x); }
static inline Sums products(Sums x, Sums y) { return _mm_mul_epu32(x, y); }
static inline Sums reduced(Sums x, Sums full) {
    Sums top = same((u8)1 << 63), less = _mm_cmpgt_epi64(_mm_xor_si128(full, top), _mm_xor_si128(x, top));
    return _mm_sub_epi64(x, _mm_andnot_si128(less, full));
}
#else
typedef u8 Sums;
static inline Sums wide(const u4 *x) { return *x; }
static inline Sums same(u8 x) { return x; }
static inline Sums products(Sums x, Sums y) { return x * y; }
static inline Sums reduced(Sums x, Sums full) { return x < x - full ? x : x - full; }
#endif

static inline i8 smaller(i8 x, i8 y) { return x < y ? x : y; }
static inline u4 least(u4 x, u4 y) { return x < y ? x : y; }

#ifdef CHOOSES
int level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2"))) return 0;
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))) return 1;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
          && __builtin_cpu_supports("avx512vl"))) return 2;
    return 3;
#else
    return 0;
#endif
}
#endif

#include "ring/kernels.c"
#include "proving/kernels.c"
#include "mechanisms/rows/kernels.c"
#include "estimation/kernels.c"
