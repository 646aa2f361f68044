# SPDX-License-Identifier: GPL-2.0
#
# The tools. Each is the objects of its list, linked statically against the
# library, so that a built tree works without installing anything.

TOOL_PROGRAMS	:= kcr-run kcr-info kcr-perf
TOOLS		+= $(TOOL_PROGRAMS:%=$(B)/bin/%)

kcr-run_SRC	:= tools/kcr-run.c tools/run-keeper.c tools/run-options.c \
		   tools/run-output.c tools/run-place.c tools/run-typed.c
kcr-info_SRC	:= tools/kcr-info.c
kcr-info_LIBS	:= -ljansson
kcr-perf_SRC	:= tools/kcr-perf.c tools/perf-bare.c tools/perf-collectives.c \
		   tools/perf-data.c tools/perf-options.c tools/perf-ring.c \
		   tools/perf-table.c tools/perf-times.c
kcr-perf_LIBS	:= -ljansson -lcrypto
digits_SRC	:= tools/samples/digits/digits.c tools/samples/digits/network.c \
		   tools/samples/digits/images.c
digits_LIBS	:= -lcrypto -lz

TOOL_CFLAGS	:= -std=gnu11 -D_GNU_SOURCE -Iinclude -Iuapi -Wall -Wextra \
		   -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wvla -Werror

# The sample's bits are to be the same on every machine: one instruction an
# operation, whatever CFLAGS would allow.
$(B)/obj/tools/samples/digits/%.o: TOOL_EXTRA := -ffp-contract=off -fno-fast-math

$(B)/obj/tools/%.o: tools/%.c tools/build.mk
	@mkdir -p $(@D)
	$(CC) -O2 -g $(CFLAGS) $(TOOL_CFLAGS) $(TOOL_EXTRA) -MMD -MP -c -o $@ $<

tool-objects = $($(1)_SRC:%.c=$(B)/obj/%.o)

define tool-rule
$(B)/bin/$(1): $$(call tool-objects,$(1)) $(B)/lib/libkcollring.a
	@mkdir -p $$(@D)
	$$(CC) -pthread $$(LDFLAGS) -o $$@ $$^ $$($(1)_LIBS) -luring
-include $$(patsubst %.o,%.d,$$(call tool-objects,$(1)))
endef
$(foreach tool,$(TOOL_PROGRAMS) digits,$(eval $(call tool-rule,$(tool))))

$(B)/share/digits.csv.gz: tools/samples/digits/digits.csv.gz
	@mkdir -p $(@D)
	cp $< $@

tools: $(B)/bin/digits $(B)/share/digits.csv.gz

.PHONY: demo
demo: deps
	+@$(MAKE) --no-print-directory all
	tools/demo.sh
