// SPDX-License-Identifier: GPL-2.0
/*
 * CRC-32C: every form that this CPU has (tables, the instruction of x86 or aarch64)
 * against a reference that takes a bit at a time, and all against RFC 3720
 *
 * Budget: 10 seconds.
 */
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "cpu.h"
#include "probe.h"
#include "../../lib/crc32c.h"

PROBE_BUDGET(10)

#define SHORT	300
#define LONG	9000	/* three parts of the longest there are, twice, and more */
#define GAPS	64

/*
 * Data that ends before a page that cannot be read: a form that looks at what it was
 * not given faults where the gap is 0.
 */
static unsigned char *room, *room_end;
static unsigned char data[LONG];
static uint32_t want[LONG + 1];		/* of so many bytes */

static uint32_t reference(uint32_t crc, const unsigned char *p, size_t bytes)
{
	crc = ~crc;
	while (bytes--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

__attribute__((constructor))
static void prepare(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t size = (LONG + GAPS + page - 1) / page * page;
	uint64_t x = 1;

	room = mmap(NULL, size + page, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED || mprotect(room + size, page, PROT_NONE))
		abort();
	room_end = room + size;
	for (int i = 0; i < LONG; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		data[i] = x >> 56;
		want[i + 1] = reference(want[i], &data[i], 1);
	}
}

/* The form's checksum of the first @bytes bytes, which lie @gap before the end. */
static uint32_t sum(const struct crc32c_form *form, size_t bytes, size_t gap)
{
	unsigned char *at = room_end - gap - bytes;

	memcpy(at, data, bytes);
	return form->run(0, at, bytes);
}

/* The form behind @form that this CPU has, or NULL; the first behind NULL. */
static const struct crc32c_form *next_form(const struct crc32c_form *form)
{
	form = form ? form + 1 : crc32c_forms;
	while (form < crc32c_forms + crc32c_forms_count && !form->is_here())
		form++;
	return form < crc32c_forms + crc32c_forms_count ? form : NULL;
}

/* RFC 3720, B.4, and the value that catalogues of checksums give. */
TEST(published)
{
	static const unsigned char read_pdu[48] = {
		0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18,
		0x28, [40] = 0x02,
	};
	unsigned char zeros[32] = { 0 }, ones[32], up[32], down[32];
	const struct crc32c_form *form = NULL;

	for (int i = 0; i < 32; i++) {
		ones[i] = 0xff;
		up[i] = i;
		down[i] = 31 - i;
	}
	while ((form = next_form(form))) {
		EXPECT_EQ(0, form->run(0, NULL, 0));
		EXPECT_EQ(0x8a9136aa, form->run(0, zeros, 32));
		EXPECT_EQ(0x62a8ab43, form->run(0, ones, 32));
		EXPECT_EQ(0x46dd794e, form->run(0, up, 32));
		EXPECT_EQ(0x113fdb5c, form->run(0, down, 32));
		EXPECT_EQ(0xd9963a56, form->run(0, read_pdu, 48));
		EXPECT_EQ(0xe3069283, form->run(0, "123456789", 9));
	}
	EXPECT_EQ(0xe3069283, crc32c(0, "123456789", 9));
	EXPECT_EQ(0x46dd794e, crc32c(crc32c(0, up, 13), up + 13, 19));
}

static void try_sum(struct __test_metadata *_metadata,
		    const struct crc32c_form *form, size_t bytes, size_t gap)
{
	ASSERT_EQ(want[bytes], sum(form, bytes, gap)) {
		TH_LOG("%s: %zu bytes, %zu before the end", form->name, bytes, gap);
	}
}

TEST(lengths_and_alignments)
{
	const struct crc32c_form *form = NULL;

	while ((form = next_form(form)))
		for (size_t bytes = 0; bytes <= SHORT; bytes++)
			for (size_t gap = 0; gap < GAPS; gap++)
				try_sum(_metadata, form, bytes, gap);
}

TEST(long_lengths)
{
	const struct crc32c_form *form = NULL;

	while ((form = next_form(form)))
		for (size_t bytes = SHORT; bytes <= LONG; bytes++)
			try_sum(_metadata, form, bytes, bytes * 7 % GAPS);
}

static void try_splits(struct __test_metadata *_metadata,
		       const struct crc32c_form *form, size_t bytes)
{
	for (size_t at = 0; at <= bytes; at++) {
		uint32_t crc = form->run(0, data, at);

		ASSERT_EQ(want[at], crc);
		crc = form->run(crc, data + at, bytes - at);
		ASSERT_EQ(want[bytes], crc) {
			TH_LOG("%s: %zu bytes, split at %zu", form->name, bytes, at);
		}
	}
}

TEST(split_everywhere)
{
	const struct crc32c_form *form = NULL;

	while ((form = next_form(form))) {
		try_splits(_metadata, form, SHORT);
		try_splits(_metadata, form, LONG);
	}
}

static void try_before(struct __test_metadata *_metadata,
		       const struct crc32c_form *form, uint32_t before)
{
	for (size_t bytes = 0; bytes < 4400; bytes += 44) {
		ASSERT_EQ(reference(before, data, bytes),
			  form->run(before, data, bytes)) {
			TH_LOG("%s: %zu bytes behind %#x", form->name, bytes, before);
		}
	}
}

/* What comes before is not forgotten, whatever it was. */
TEST(registers)
{
	const struct crc32c_form *form = NULL;

	while ((form = next_form(form))) {
		try_before(_metadata, form, 1);
		try_before(_metadata, form, 0x80000000);
		try_before(_metadata, form, 0xffffffff);
		try_before(_metadata, form, 0x12345678);
	}
}

/* What the kernel says that the CPU has is used. */
TEST(forms_are_used)
{
	int expected = 1;

#if defined(__x86_64__)
	if (cpu_has("sse4_2") && cpu_has("pclmulqdq"))
		expected = 2 + (cpu_has("avx512f") && cpu_has("vpclmulqdq"));
#elif defined(__aarch64__)
	/* HWCAP_CRC32, HWCAP_PMULL: an emulator's /proc/cpuinfo is the host's. */
	expected += (getauxval(AT_HWCAP) & 0x90) == 0x90;
#endif
	for (int i = 0; i < crc32c_forms_count; i++)
		EXPECT_EQ(i < expected, crc32c_forms[i].is_here());
}

TEST_HARNESS_MAIN
