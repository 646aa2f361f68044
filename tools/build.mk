# SPDX-License-Identifier: GPL-2.0
#
# The tools. Each is the objects of its list, linked statically against the
# library, so that a built tree works without installing anything.

TOOL_PROGRAMS	:= kcr-run kcr-info kcr-perf
TOOLS		+= $(TOOL_PROGRAMS:%=$(B)/bin/%)

kcr-run_SRC	:= tools/kcr-run.c tools/run-output.c
kcr-info_SRC	:= tools/kcr-info.c
kcr-info_LIBS	:= -ljansson
kcr-perf_SRC	:= tools/kcr-perf.c tools/perf-data.c tools/perf-table.c
kcr-perf_LIBS	:= -ljansson -lcrypto

TOOL_CFLAGS	:= -std=gnu11 -D_GNU_SOURCE -Iinclude -Iuapi -Wall -Wextra \
		   -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wvla -Werror

$(B)/obj/tools/%.o: tools/%.c tools/build.mk
	@mkdir -p $(@D)
	$(CC) -O2 -g $(CFLAGS) $(TOOL_CFLAGS) -MMD -MP -c -o $@ $<

tool-objects = $($(1)_SRC:%.c=$(B)/obj/%.o)

define tool-rule
$(B)/bin/$(1): $$(call tool-objects,$(1)) $(B)/lib/libkcollring.a
	@mkdir -p $$(@D)
	$$(CC) -pthread $$(LDFLAGS) -o $$@ $$^ $$($(1)_LIBS) -luring
-include $$(patsubst %.o,%.d,$$(call tool-objects,$(1)))
endef
$(foreach tool,$(TOOL_PROGRAMS),$(eval $(call tool-rule,$(tool))))
