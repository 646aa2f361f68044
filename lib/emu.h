/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The emulator, as the requests of its worlds see it.
 */
#ifndef KCR_EMU_H
#define KCR_EMU_H

#include "request.h"

int emu_wait(struct kcr_request *r);
void emu_poll(struct kcr_request *r);

#endif /* KCR_EMU_H */
