/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* CRC-32C (Castagnoli), as RFC 3720 has it: the checksum of slots. */
#ifndef KCR_CRC32C_H
#define KCR_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * crc32c() - checksum of more bytes
 * @crc: the checksum of what came before them; 0 at the start
 * @data: the bytes, aligned as they may be
 * @bytes: how many
 *
 * Bytes that change meanwhile give some checksum; each is read once.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The forms, ascending: those that were compiled; the last that is here is used. */
struct crc32c_form {
	const char *name;
	bool (*is_here)(void);
	uint32_t (*run)(uint32_t crc, const void *data, size_t bytes);
};

extern const struct crc32c_form crc32c_forms[];
extern const int crc32c_forms_count;

#endif /* KCR_CRC32C_H */
