/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What modules on different nodes say to each other, all little-endian. Nothing
 * here changes without a new version.
 *
 *	lower rank			higher rank
 *	REQ: struct wire_request ->
 *				<- REP: struct wire_accept, or REJ: wire_reject
 *	HELLO ->
 *				<- WELCOME
 *
 * Each side contributes a nonce and proves, over both, that it knows the world's
 * key; the two proofs have different labels, so neither can be sent back. Until
 * its own proof is in, a side gets nothing: no ring is opened to it. Nothing
 * that was recorded helps: the other side's nonce is new each time.
 *
 * Afterwards a connection carries frames (RDMA writes with an immediate) and
 * messages (sends). All consume a receive, so credits bound both: see ring.c, and
 * lane.c for messages about lanes. What is put into lanes are RDMA writes, which
 * nobody is told of.
 */
#ifndef _KCR_VERBS_WIRE_H
#define _KCR_VERBS_WIRE_H

#include <linux/build_bug.h>
#include <linux/types.h>

#include <linux/kcollring.h>

#define WIRE_MAGIC		0x6772636bU	/* "kcrg" */
#define WIRE_VERSION		3
#define WIRE_VERSION_MIN	3

#define WIRE_NONCE_BYTES	16
#define WIRE_PROOF_BYTES	32

/* rdma_cm gives 56 bytes to whoever connects. */
struct wire_request {
	__le32 magic;
	__le16 version;
	__le16 version_min;
	u8 world[16];
	__le16 from;
	__le16 to;
	__le16 ranks;
	u8 wire;
	u8 depth;
	u8 nonce[WIRE_NONCE_BYTES];
	u8 reserved[8];
};

static_assert(sizeof(struct wire_request) == 56);

struct wire_accept {
	__le32 magic;
	__le16 version;
	__le16 reserved;
	u8 nonce[WIRE_NONCE_BYTES];
	u8 proof[WIRE_PROOF_BYTES];
};

static_assert(sizeof(struct wire_accept) == 56);

struct wire_reject {
	__le32 magic;
	__le16 version;
	__le16 reason;		/* KCR_REASON_* */
	__le32 detail;
};

/* The detail of DUPLICATE: the one that came first has not proven yet who it is. */
#define WIRE_UNPROVEN		1

static_assert(sizeof(struct wire_reject) == 12);

enum wire_type {
	WIRE_HELLO = 1,		/* proof */
	WIRE_WELCOME,
	WIRE_WANT,		/* ring: please open it */
	WIRE_OPENED,		/* ring: here it is */
	WIRE_PING,		/* what the rank says it is doing */
	WIRE_FAIL,		/* the world has failed */
	WIRE_BYE,		/* the rank has left; nothing but PING comes after */
	WIRE_LANE,		/* lane: mine is made, here it is */
	WIRE_UNLANE,		/* end: mine goes; write no more, and say so */
	WIRE_UNLANED,		/* end: nothing of mine is on its way to yours */
	WIRE_ARM,		/* end: ring when there is more than was seen */
	WIRE_RING,		/* end: there is; an immediate may say so, too */
	WIRE_CREDIT,		/* nothing but wire_message.credits */
};

/*
 * Messages about lanes, but CREDIT, need a credit each, since what makes them is not
 * bounded otherwise. What was taken is given back by whatever message goes next, or
 * by a CREDIT for half of them or more.
 */
#define WIRE_CREDITS		16

static inline bool wire_needs_credit(u8 type)
{
	return type >= WIRE_LANE && type <= WIRE_RING;
}

struct wire_ring {
	u8 stream;
	u8 class;
	__le16 depth;
	__le32 rkey;
	__le64 address;
};

/*
 * Of the slots, or of the acknowledgement page: what may be written has a key for
 * each kcr_remote_slots() of them, and its offset as its address.
 */
#define WIRE_LANE_HEARD		0x1	/* this side has the other's, too */

struct wire_lane {
	u8 window;
	u8 flags;
	__le16 source;
	__le16 destination;
	__le16 reserved;
	__le32 depth;
	__le32 capacity;
	__le32 rkeys[KCR_REMOTE_PARTS];
};

/*
 * One end of a lane: the window and the source's rank, of the two, tell which. ARM asks for
 * one RING, and for as many more, each for what is newer than what the last was for.
 */
#define WIRE_RINGS		8	/* most that one ARM asks for */

struct wire_end {
	u8 window;
	u8 more;		/* with ARM; else 0 */
	__le16 source;
	__le32 reserved2;
	__le64 seen;
};

/* Times are ages: clocks of nodes differ. All ones: none. */
struct wire_ping {
	__le64 number;
	__le64 since_age_ns;
	__le64 count;
	__le32 kind;
	__le32 detail;
	__le64 beat_age_ns;
};

struct wire_fail {
	__le32 rank;
	__le32 error;
};

struct wire_message {
	__le32 magic;
	u8 type;
	u8 credits;		/* for messages about lanes */
	u8 reserved[2];
	union {
		u8 proof[WIRE_PROOF_BYTES];
		struct wire_ring ring;
		struct wire_ping ping;
		struct wire_fail fail;
		struct wire_lane lane;
		struct wire_end end;
		u8 bytes[56];
	};
};

static_assert(sizeof(struct wire_message) == 64);

/*
 * An immediate has the ring of the frame, or WIRE_NO_FRAME, and the credit of one
 * ring in the other direction: the low bits of the last sequence released. Or it has
 * WIRE_NO_FRAME and WIRE_RUNG: what it comes with was written to a lane, and is the RING for
 * that. It needs a credit as the message does.
 */
#define WIRE_NO_FRAME		3U	/* as stream */
#define WIRE_RUNG		1U	/* as class */
#define WIRE_CREDIT_BITS	21
#define WIRE_CREDIT_MASK	((1U << WIRE_CREDIT_BITS) - 1)

static inline u32 wire_imm(u32 stream, u32 class)
{
	return stream | class << 2;
}

static inline u32 wire_imm_credit(u32 stream, u32 class, u64 released)
{
	return 1U << 5 | stream << 6 | class << 8 |
	       ((u32)released & WIRE_CREDIT_MASK) << 11;
}

/* @by_source: who writes, and rings, is the lane's source */
static inline u32 wire_imm_rung(u32 window, bool by_source)
{
	return wire_imm(WIRE_NO_FRAME, WIRE_RUNG) | by_source << 6 |
	       window << 8;
}

#define WIRE_IMM_RUNG_BY_SOURCE(imm)	((imm) >> 6 & 1)
#define WIRE_IMM_RUNG_WINDOW(imm)	((imm) >> 8)

#define WIRE_IMM_STREAM(imm)		((imm) & 3)
#define WIRE_IMM_CLASS(imm)		((imm) >> 2 & 7)
#define WIRE_IMM_HAS_CREDIT(imm)	((imm) >> 5 & 1)
#define WIRE_IMM_CREDIT_STREAM(imm)	((imm) >> 6 & 3)
#define WIRE_IMM_CREDIT_CLASS(imm)	((imm) >> 8 & 7)
#define WIRE_IMM_CREDIT(imm)		((imm) >> 11)

#endif /* _KCR_VERBS_WIRE_H */
