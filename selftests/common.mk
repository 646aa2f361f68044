# SPDX-License-Identifier: GPL-2.0
# What the Makefiles of the folders share

top := $(realpath $(dir $(realpath $(lastword $(MAKEFILE_LIST))))..)

B ?= build

CFLAGS += -O2 -g -std=gnu11 -Wall -Wextra -Wno-unused-parameter \
	-Wno-sign-compare -Wno-missing-field-initializers -ffp-contract=off \
	-I$(top)/include -I$(top)/uapi -I$(top)/selftests/lib \
	-isystem $(top)/build/kselftest/tools/testing/selftests
LDLIBS += -luring -lpthread

# Neither is compiled on its own, but what they change is.
LOCAL_HDRS += $(wildcard $(top)/selftests/lib/*.h) $(top)/include/kcollring.h \
	$(top)/uapi/linux/kcollring.h $(top)/$(B)/lib/libkcollring.a
LDLIBS := $(top)/$(B)/lib/libkcollring.a $(LDLIBS)

# What shell scripts here use lies beside them when they are installed: ./tap.sh, and
# the tools, ./kcr-run.
TEST_FILES += $(wildcard $(top)/selftests/lib/*.sh)
TEST_PROGS_EXTENDED += $(addprefix $(top)/$(B)/bin/,kcr-run kcr-info kcr-perf)

include ../../lib.mk
