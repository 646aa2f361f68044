// SPDX-License-Identifier: GPL-2.0
/*
 * Proofs: that the other end of a connection knows the world's key.
 *
 * A proof is HMAC-SHA-256 with the world's key over who proves, the world, the
 * two ranks, the wire and both nonces. Needs no lock: nonces are fixed by the
 * time a proof is made or checked.
 */
#include <crypto/hash.h>
#include <linux/string.h>

#include "../compat.h"
#include "verbs.h"

/* What is signed. No padding, so that the same bits mean the same thing. */
struct statement {
	u8 label[8];
	u8 world[16];
	__le16 low;
	__le16 high;
	__le16 ranks;
	u8 wire;
	u8 depth;
	u8 nonces[2][WIRE_NONCE_BYTES];
};

static_assert(sizeof(struct statement) == 64);

static void fill(const struct conn *c, bool is_active, struct statement *s)
{
	const struct kcr_member *m = c->member;

	memset(s, 0, sizeof(*s));
	memcpy(s->label, is_active ? "kcr-low " : "kcr-high", sizeof(s->label));
	memcpy(s->world, m->world->id, sizeof(s->world));
	s->low = cpu_to_le16(min(m->rank, c->peer));
	s->high = cpu_to_le16(max(m->rank, c->peer));
	s->ranks = cpu_to_le16(m->world->ranks);
	s->wire = c->wire;
	s->depth = c->depth;
	memcpy(s->nonces, c->nonces, sizeof(s->nonces));
}

/**
 * proof_make() - the proof of one side
 * @c: the connection; both nonces are known
 * @is_active: of the side that connected, which has the lower rank
 * @proof: gets WIRE_PROOF_BYTES
 *
 * May sleep.
 *
 * Return: 0 or an error.
 */
int proof_make(const struct conn *c, bool is_active, u8 *proof)
{
	struct crypto_shash *tfm;
	struct statement s;
	int ret;

	tfm = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
	      crypto_alloc_shash("hmac(sha256)", 0, 0);
	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	fill(c, is_active, &s);
	ret = crypto_shash_setkey(tfm, c->member->world->key,
				  sizeof(c->member->world->key));
	if (!ret)
		ret = crypto_shash_tfm_digest(tfm, (u8 *)&s, sizeof(s), proof);
	crypto_free_shash(tfm);
	return ret;
}

/**
 * proof_check() - has the peer proven that it knows the key
 * @c: the connection; both nonces are known
 * @is_active: the peer is the side that connected
 * @proof: what it sent
 *
 * Takes as long wherever it is wrong.
 *
 * Return: 0, -EKEYREJECTED if it has not, or why that cannot be told.
 */
int proof_check(const struct conn *c, bool is_active, const u8 *proof)
{
	u8 right[WIRE_PROOF_BYTES];
	int ret;

	ret = proof_make(c, is_active, right);
	if (ret)
		return ret;
	if (crypto_memneq(right, proof, sizeof(right)))
		ret = -EKEYREJECTED;
	memzero_explicit(right, sizeof(right));
	return ret;
}
