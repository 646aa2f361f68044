/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KUnit: a connection without a device, for what needs none. Its works only count.
 */
#ifndef _KCR_VERBS_KUNIT_H
#define _KCR_VERBS_KUNIT_H

#include <kunit/test.h>

#include "verbs.h"

#define FAKE_RANKS	8

struct fake {
	struct kcr_world world;
	struct kcr_member *places[FAKE_RANKS];	/* world.members[] */
	struct kcr_member member;
	struct mesh mesh;
	struct conn c;
	struct kcr_conn_status status;
	atomic_t closes;
	atomic_t events;
};

static inline void fake_close(struct work_struct *work)
{
	atomic_inc(&container_of(work, struct fake, c.close_work)->closes);
}

static inline void fake_event(struct work_struct *work)
{
	atomic_inc(&container_of(work, struct fake, c.event_work)->events);
}

/* Of rank 5, to rank 2, which is the one that connects. */
static inline struct fake *fake_new(struct kunit *test)
{
	struct fake *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	struct conn *c;

	KUNIT_ASSERT_NOT_NULL(test, f);
	c = &f->c;
	f->world.ranks = FAKE_RANKS;
	f->member.world = &f->world;
	f->member.rank = 5;
	f->mesh.base.member = &f->member;
	xa_init(&f->mesh.conns);
	c->member = &f->member;
	c->mesh = &f->mesh;
	c->peer = 2;
	c->depth = 3;
	c->status = &f->status;
	mutex_init(&c->open_lock);
	spin_lock_init(&c->lock);
	INIT_WORK(&c->close_work, fake_close);
	INIT_WORK(&c->event_work, fake_event);
	INIT_WORK(&c->lane_work, lane_work);
	c->credits = WIRE_CREDITS;
	return f;
}

static inline int fake_closes(struct fake *f)
{
	flush_work(&f->c.close_work);
	return atomic_read(&f->closes);
}

static inline int fake_events(struct fake *f)
{
	flush_work(&f->c.event_work);
	return atomic_read(&f->events);
}

#endif /* _KCR_VERBS_KUNIT_H */
