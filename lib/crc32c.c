// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * CRC-32C: by the instruction that x86 and aarch64 have for it, else by tables.
 *
 * The instruction takes eight bytes a cycle, but has its result only after three: so
 * long data is cut into three parts, whose checksums are made side by side and
 * then put together. With K = x^(64n - 33) mod P, the product of a checksum and K
 * without carries, given to the instruction, is the checksum behind 8n more
 * bytes of zeros: what the parts before the last need.
 *
 * Where products can be made four at a time (VPCLMULQDQ with AVX-512), long data
 * is folded instead: 16 bytes, times x to the distance of those some way further on,
 * are added to them, until 16 are left that have the checksum of all.
 *
 * The tables are made and the form is chosen when the library is loaded;
 * constant afterwards. All forms keep the register inverted only between calls.
 */
#include <endian.h>
#include <string.h>
#include "crc32c.h"

#define POLYNOMIAL	0x82f63b78u	/* reflected: bit 31 is x^0 */

static uint32_t table[8][256];

static uint64_t load(const unsigned char *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return le64toh(word);
}

static uint32_t table_byte(uint32_t crc, unsigned char byte)
{
	return table[0][(crc ^ byte) & 0xff] ^ crc >> 8;
}

/* table[k][b]: the register after byte b and k bytes of zeros. */
static void make_table(void)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[0][b] = crc;
	}
	for (int k = 1; k < 8; k++)
		for (int b = 0; b < 256; b++)
			table[k][b] = table_byte(table[k - 1][b], 0);
}

static uint32_t run_table(uint32_t crc, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, p += 8) {
		uint64_t word = load(p) ^ crc;

		crc = table[7][word & 0xff] ^
		      table[6][word >> 8 & 0xff] ^
		      table[5][word >> 16 & 0xff] ^
		      table[4][word >> 24 & 0xff] ^
		      table[3][word >> 32 & 0xff] ^
		      table[2][word >> 40 & 0xff] ^
		      table[1][word >> 48 & 0xff] ^
		      table[0][word >> 56];
	}
	while (bytes--)
		crc = table_byte(crc, *p++);
	return ~crc;
}

static bool table_is_here(void)
{
	return true;
}

#if defined(__CHECKER__)
/* Sparse does not know what the compiler has for these instructions. */
#elif defined(__x86_64__)

#include <immintrin.h>

#define HAS_INSTRUCTION	"sse4.2"
#define HAS_FOLD	"vpclmulqdq"
#define TARGET		__attribute__((target("sse4.2,pclmul")))

static bool instruction_is_here(void)
{
	return __builtin_cpu_supports("sse4.2") &&
	       __builtin_cpu_supports("pclmul");
}

TARGET static inline uint32_t step_byte(uint32_t crc, unsigned char byte)
{
	return _mm_crc32_u8(crc, byte);
}

TARGET static inline uint32_t step(uint32_t crc, uint64_t word)
{
	return _mm_crc32_u64(crc, word);
}

TARGET static inline uint64_t multiply(uint32_t a, uint32_t b)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(a),
					       _mm_cvtsi32_si128(b), 0);

	return _mm_cvtsi128_si64(product);
}

#elif defined(__aarch64__)

#include <arm_acle.h>
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#define HAS_INSTRUCTION	"crc"
#define TARGET		__attribute__((target("+crc+crypto")))

static bool instruction_is_here(void)
{
	const unsigned long both = HWCAP_CRC32 | HWCAP_PMULL;

	return (getauxval(AT_HWCAP) & both) == both;
}

TARGET static inline uint32_t step_byte(uint32_t crc, unsigned char byte)
{
	return __crc32cb(crc, byte);
}

TARGET static inline uint32_t step(uint32_t crc, uint64_t word)
{
	return __crc32cd(crc, word);
}

TARGET static inline uint64_t multiply(uint32_t a, uint32_t b)
{
	return (uint64_t)vmull_p64(a, b);
}

#endif

#ifdef HAS_INSTRUCTION

#define WORDS_LEAST	4	/* of a part: fewer are not worth the putting together */
#define WORDS_MOST	176	/* ... 4 KiB, a slot's head with it, in one go */

/* K of above, by n; of 0 there is none. */
static uint32_t behind[2 * WORDS_MOST + 1];

static void make_behind(void)
{
	uint32_t k = 1;		/* x^31 */

	for (int n = 1; n <= 2 * WORDS_MOST; n++) {
		behind[n] = k;
		for (int byte = 0; byte < 8; byte++)
			k = table_byte(k, 0);
	}
}

#ifdef HAS_FOLD
/* x^(64n - 1), by n: 0 is not used. Bit 63 is x^0, and a product is one x too large. */
static uint64_t ahead[4 * 8 + 2];

static void make_ahead(void)
{
	uint32_t k = 1;		/* x^31 */

	for (int n = 1; n < 4 * 8 + 2; n++) {
		for (int byte = 0; byte < (n == 1 ? 4 : 8); byte++)
			k = table_byte(k, 0);
		ahead[n] = (uint64_t)k << 32;
	}
}
#endif

/* Three parts of @words each. */
TARGET static uint32_t three_parts(uint32_t crc, const unsigned char *p, size_t words)
{
	const unsigned char *second = p + 8 * words, *third = second + 8 * words;
	uint32_t crc2 = 0, crc3 = 0;

	for (size_t i = 0; i < words; i++) {
		crc = step(crc, load(p + 8 * i));
		crc2 = step(crc2, load(second + 8 * i));
		crc3 = step(crc3, load(third + 8 * i));
	}
	return crc3 ^ step(0, multiply(crc, behind[2 * words]) ^
			      multiply(crc2, behind[words]));
}

TARGET static inline uint32_t take(uint32_t crc, const unsigned char *p, size_t bytes)
{
	size_t words;

	while (bytes >= 24 * WORDS_LEAST) {
		words = bytes / 24 < WORDS_MOST ? bytes / 24 : WORDS_MOST;
		crc = three_parts(crc, p, words);
		p += 24 * words;
		bytes -= 24 * words;
	}
	for (; bytes >= 8; bytes -= 8, p += 8)
		crc = step(crc, load(p));
	while (bytes--)
		crc = step_byte(crc, *p++);
	return crc;
}

TARGET static uint32_t run_instruction(uint32_t crc, const void *data, size_t bytes)
{
	return ~take(~crc, data, bytes);
}

#endif /* HAS_INSTRUCTION */

#ifdef HAS_FOLD

#define FOLD_LEAST	512	/* bytes: fewer are as fast in three parts */
#define VECTOR		64

#define FOLD_TARGET \
	__attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

static bool fold_is_here(void)
{
	return instruction_is_here() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("vpclmulqdq");
}

/* Factors for the two halves of 16 bytes that go @words of 8 bytes on; see make_ahead(). */
FOLD_TARGET static inline __m512i factors(int words)
{
	return _mm512_broadcast_i32x4(_mm_set_epi64x(ahead[words], ahead[words + 1]));
}

/* All of @x, taken on, added to @next. */
FOLD_TARGET static inline __m512i fold(__m512i x, __m512i by, __m512i next)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, by, 0x00),
					 _mm512_clmulepi64_epi128(x, by, 0x11),
					 next, 0x96);
}

/* The first three of the four parts of @x, taken on to the last. */
FOLD_TARGET static inline __m128i fold_parts(__m512i x)
{
	__m512i by = _mm512_set_epi64(0, 0, ahead[2], ahead[3], ahead[4], ahead[5],
				      ahead[6], ahead[7]);
	__m512i folded = fold(x, by, _mm512_setzero_si512());
	__m128i last = _mm512_extracti32x4_epi32(x, 3);

	last = _mm_xor_si128(last, _mm512_extracti32x4_epi32(folded, 0));
	last = _mm_xor_si128(last, _mm512_extracti32x4_epi32(folded, 1));
	return _mm_xor_si128(last, _mm512_extracti32x4_epi32(folded, 2));
}

/* @bytes: a multiple of VECTOR, at least four times that. */
FOLD_TARGET static uint32_t take_folded(uint32_t crc, const unsigned char *p, size_t bytes)
{
	const __m512i by = factors(4 * VECTOR / 8);
	const unsigned char *end = p + bytes;
	__m512i x[4];
	__m128i last;

	for (int i = 0; i < 4; i++)
		x[i] = _mm512_loadu_si512(p + i * VECTOR);
	x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc)));
	for (p += 4 * VECTOR; end - p >= 4 * VECTOR; p += 4 * VECTOR)
		for (int i = 0; i < 4; i++)
			x[i] = fold(x[i], by, _mm512_loadu_si512(p + i * VECTOR));
	x[3] = fold(x[0], factors(3 * VECTOR / 8), x[3]);
	x[3] = fold(x[1], factors(2 * VECTOR / 8), x[3]);
	x[3] = fold(x[2], factors(VECTOR / 8), x[3]);
	for (; p < end; p += VECTOR)
		x[3] = fold(x[3], factors(VECTOR / 8), _mm512_loadu_si512(p));
	last = fold_parts(x[3]);
	return step(step(0, _mm_cvtsi128_si64(last)), _mm_extract_epi64(last, 1));
}

FOLD_TARGET static uint32_t run_fold(uint32_t crc, const void *data, size_t bytes)
{
	const unsigned char *p = data;
	size_t folded = bytes >= FOLD_LEAST ? bytes / VECTOR * VECTOR : 0;

	crc = ~crc;
	if (folded)
		crc = take_folded(crc, p, folded);
	return ~take(crc, p + folded, bytes - folded);
}

#endif /* HAS_FOLD */

const struct crc32c_form crc32c_forms[] = {
	{ "table", table_is_here, run_table },
#ifdef HAS_INSTRUCTION
	{ HAS_INSTRUCTION, instruction_is_here, run_instruction },
#endif
#ifdef HAS_FOLD
	{ HAS_FOLD, fold_is_here, run_fold },
#endif
};

const int crc32c_forms_count = sizeof(crc32c_forms) / sizeof(crc32c_forms[0]);

static const struct crc32c_form *chosen = &crc32c_forms[0];

__attribute__((constructor))
static void choose(void)
{
	make_table();
#ifdef HAS_INSTRUCTION
	make_behind();
#endif
#ifdef HAS_FOLD
	make_ahead();
#endif
	for (int i = 0; i < crc32c_forms_count; i++)
		if (crc32c_forms[i].is_here())
			chosen = &crc32c_forms[i];
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return chosen->run(crc, data, bytes);
}
