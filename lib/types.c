// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Names and sizes of element types, operations, links and algorithms: one
 * table each, for messages, the environment and the ranks' agreement.
 */
#include <string.h>
#include <strings.h>
#include "kcr.h"

static const struct {
	const char *name;
	size_t size;
} dtypes[KCR_DTYPES] = {
	[KCR_I8] = { "i8", 1 },		[KCR_U8] = { "u8", 1 },
	[KCR_I16] = { "i16", 2 },	[KCR_U16] = { "u16", 2 },
	[KCR_I32] = { "i32", 4 },	[KCR_U32] = { "u32", 4 },
	[KCR_I64] = { "i64", 8 },	[KCR_U64] = { "u64", 8 },
	[KCR_F16] = { "f16", 2 },	[KCR_BF16] = { "bf16", 2 },
	[KCR_F32] = { "f32", 4 },	[KCR_F64] = { "f64", 8 },
};

static const char * const ops[KCR_OPS] = {
	[KCR_SUM] = "sum",	[KCR_PROD] = "prod",
	[KCR_MIN] = "min",	[KCR_MAX] = "max",
	[KCR_MEAN] = "mean",	[KCR_BAND] = "band",
	[KCR_BOR] = "bor",	[KCR_BXOR] = "bxor",
};

const char * const kcr_link_names[] = {
	[KCR_LINK_AUTO] = "auto",
	[KCR_LINK_MODULE] = "module",
	[KCR_LINK_SHM] = "shm",
	[KCR_LINK_MESH] = "mesh",
	NULL
};

const char * const kcr_algo_names[] = {
	[KCR_ALGO_AUTO] = "auto",
	[KCR_ALGO_DIRECT] = "direct",
	[KCR_ALGO_OWNER] = "owner",
	[KCR_ALGO_CHAIN] = "chain",
	NULL
};

const char * const kcr_contract_names[] = {
	[KCR_FIXED_ORDER] = "fixed-order",
	[KCR_ANY_ORDER] = "any-order",
	NULL
};

const char * const kcr_connect_names[] = {
	[KCR_CONNECT_AUTO] = "auto",
	[KCR_CONNECT_EAGER] = "eager",
	[KCR_CONNECT_LAZY] = "lazy",
	NULL
};

static const char * const kind_names[KINDS] = {
	[KIND_NONE] = "nothing",
	[KIND_ALLREDUCE] = "allreduce",
	[KIND_BARRIER] = "barrier",
	[KIND_REDUCE_SCATTER] = "reduce-scatter",
	[KIND_ALLGATHER] = "all-gather",
	[KIND_BROADCAST] = "broadcast",
	[KIND_ANY] = "any",
	[KIND_MESSAGE] = "message",
};

KCR_PUBLIC size_t kcr_dtype_size(enum kcr_dtype dtype)
{
	return (unsigned int)dtype < KCR_DTYPES ? dtypes[dtype].size : 0;
}

KCR_PUBLIC const char *kcr_dtype_name(enum kcr_dtype dtype)
{
	return (unsigned int)dtype < KCR_DTYPES ? dtypes[dtype].name : NULL;
}

KCR_PUBLIC const char *kcr_op_name(enum kcr_op op)
{
	return (unsigned int)op < KCR_OPS ? ops[op] : NULL;
}

KCR_PUBLIC const char *kcr_version(void)
{
	return KCR_VERSION;
}

/* For messages: never NULL. */
const char *kcr_dtype_text(enum kcr_dtype dtype)
{
	const char *name = kcr_dtype_name(dtype);

	return name ? name : "an unknown type";
}

const char *kcr_op_text(enum kcr_op op)
{
	const char *name = kcr_op_name(op);

	return name ? name : "an unknown operation";
}

const char *kcr_kind_text(unsigned int kind)
{
	if (kind >= KINDS)
		return "an unknown operation";
	return kind_names[kind];
}

/**
 * kcr_name_index() - which of the NULL-ended @names is @text
 *
 * Returns the index, or -1.
 */
int kcr_name_index(const char * const names[], const char *text)
{
	for (int i = 0; names[i]; i++)
		if (!strcasecmp(names[i], text))
			return i;
	return -1;
}
