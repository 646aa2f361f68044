# SPDX-License-Identifier: GPL-2.0
#
# libkcollring: every lib/*.c is compiled once, position independent, and goes
# into the static and the shared library.

LIB_SONAME	:= libkcollring.so.0
LIB_VERSION	:= 0.1.0
LIB_SRC		:= $(wildcard lib/*.c)
LIB_OBJ		:= $(LIB_SRC:lib/%.c=$(B)/obj/lib/%.o)

LIB_CFLAGS	:= -std=gnu11 -fPIC -fvisibility=hidden -pthread -D_GNU_SOURCE \
		   -Iinclude -Iuapi -Wall -Wextra -Wmissing-prototypes \
		   -Wstrict-prototypes -Wshadow -Wvla -Werror
# The fold's bits must not depend on what the compiler may contract or reorder.
# Traps are masked and flags given back, so exceptions may be raised freely.
# Unroll-and-jam merges two operands' loops and then fails to vectorise them.
LIB_FOLD_CFLAGS	:= -O3 -ffp-contract=off -fno-fast-math -fno-trapping-math \
		   -fno-loop-unroll-and-jam -fno-loop-interchange

$(B)/obj/lib/fold%.o: LIB_EXTRA := $(LIB_FOLD_CFLAGS)
$(B)/obj/lib/fold_scalar.o: LIB_EXTRA := $(LIB_FOLD_CFLAGS) -fno-tree-vectorize
$(B)/obj/lib/fold_reference.o: LIB_EXTRA := -O2 -ffp-contract=off -frounding-math
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
$(B)/obj/lib/fold_avx2.o: LIB_EXTRA := $(LIB_FOLD_CFLAGS) -mavx2
$(B)/obj/lib/fold_avx512.o: LIB_EXTRA := $(LIB_FOLD_CFLAGS) -mavx512f \
	-mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
endif

$(B)/obj/lib/%.o: lib/%.c lib/build.mk
	@mkdir -p $(@D)
	$(CC) -O2 -g $(CFLAGS) $(LIB_CFLAGS) $(LIB_EXTRA) -MMD -MP -c -o $@ $<

$(B)/lib/libkcollring.a: $(LIB_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

$(B)/lib/$(LIB_SONAME).$(LIB_VERSION): $(LIB_OBJ) lib/libkcollring.map
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(LDFLAGS) -Wl,-soname,$(LIB_SONAME) \
		-Wl,--version-script=lib/libkcollring.map -Wl,-z,defs \
		-o $@ $(LIB_OBJ) -luring

$(B)/lib/$(LIB_SONAME): $(B)/lib/$(LIB_SONAME).$(LIB_VERSION)
	ln -sf $(<F) $@

$(B)/lib/libkcollring.so: $(B)/lib/$(LIB_SONAME)
	ln -sf $(<F) $@

.PHONY: lib
lib: $(B)/lib/libkcollring.a $(B)/lib/libkcollring.so

-include $(LIB_OBJ:.o=.d)
