# SPDX-License-Identifier: GPL-2.0
# kcollring: the module, the library, the tools and their tests
#
# This file knows the parts and the order; how a part is built is told in its
# own folder (kmod/build.mk, lib/build.mk, tools/build.mk). Everything that is
# made goes under build/. "make help" lists the targets.

# One kernel release, or all whose headers are installed.
KVER ?=
KVERS := $(if $(KVER),$(KVER),$(patsubst /lib/modules/%/build/Makefile,%,\
	$(wildcard /lib/modules/*/build/Makefile)))

PREFIX ?= /usr/local
DESTDIR ?=
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
UDEVDIR ?= /lib/udev/rules.d

B := build
CC = gcc

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

MODULES :=
TOOLS :=
KSELFTEST := build/kselftest/.stamp

-include lib/build.mk kmod/build.mk tools/build.mk

.PHONY: all modules lib tools deps
all: modules lib tools

modules: $(or $(MODULES),$(if $(wildcard kmod/build.mk),\
	$(KVERS:%=build/kmod/%/kcollring.ko)))
tools: $(TOOLS)

# Debian packages that are missing, if any. Needs root or sudo only then.
deps:
	tools/install-deps

# The kernel's selftest framework, checkpatch and coccinelle's scripts come in no package but the
# kernel's source. Unpacking takes eight seconds, once. checkpatch's list of
# misspellings has a word that is right in British English, as used here.
KSRC := /usr/src/linux-source-6.12.tar.xz
KSELFTEST_FILES := COPYING LICENSES scripts/checkpatch.pl scripts/spelling.txt \
	scripts/const_structs.checkpatch scripts/subarch.include scripts/coccinelle \
	$(addprefix tools/testing/selftests/,Makefile lib.mk kselftest.h \
	kselftest_harness.h kselftest run_kselftest.sh)

.PHONY: kselftest
kselftest: $(KSELFTEST)
$(KSELFTEST): $(wildcard $(KSRC)) Makefile
	@test -r $(KSRC) || { \
		echo "$(KSRC) is missing: apt-get install linux-source-6.12" >&2; \
		exit 1; }
	@echo '  UNPACK   $(KSRC)'
	@rm -rf build/kselftest.new && mkdir -p build/kselftest.new
	@tar -C build/kselftest.new --strip-components=1 -xJf $(KSRC) \
		$(addprefix linux-source-6.12/,$(KSELFTEST_FILES))
	@sed -i '/^acknowledgement||/d' build/kselftest.new/scripts/spelling.txt
	@rm -rf build/kselftest && mv build/kselftest.new build/kselftest
	@touch $@

# The tests, built, and installed as an operator would have them.
.PHONY: selftests
selftests: lib tools $(KSELFTEST)
	+@$(MAKE) -s --no-print-directory -C selftests install \
		B=$(B) INSTALL_PATH=$(CURDIR)/$(B)/check

# What is checked: see selftests/check. These install what is missing and
# build first, and end with one line: N passed, N failed, N skipped.
KERNEL ?= 6.12
CHECK := host+shm device-6.12+device-6.1 world-6.12 world-6.1-some cluster-6.12 \
	cluster-6.1-some
CHECK_LONG := host shm asan tsan $(foreach k,6.12 6.1,device-$k world-$k cluster-$k) \
	device-debug world-debug cluster-debug device-kcsan world-kcsan
CHECK_DEBUG := asan tsan debug
.PHONY: check check-debug check-all check-asan check-tsan check-host check-vm
.PHONY: check-cluster check-long
check:
	+@selftests/check $(CHECK)
check-debug:
	+@selftests/check $(CHECK_DEBUG)
check-all:
	+@selftests/check $(CHECK) $(CHECK_DEBUG)
check-host:
	+@selftests/check host+shm
check-asan:
	+@selftests/check asan
check-tsan:
	+@selftests/check tsan
check-vm:
	+@selftests/check device-$(KERNEL) world-$(KERNEL)
check-cluster:
	+@selftests/check cluster-$(KERNEL)
check-long:
	+@KCR_TEST_LONG=1 selftests/check $(CHECK_LONG)

# What ran of the modules in the last check-debug.
.PHONY: coverage
coverage:
	@cat build/check-results/debug/coverage || \
		{ echo 'make check-debug counts which lines run' >&2; exit 1; }

# Ratios against the bare machine, on this host.
.PHONY: bench
bench: lib tools
	tools/bench/host

# Ratios against the bare device, in the same machines and the same run.
.PHONY: bench-vm
bench-vm: all
	tools/bench-vm $(KERNEL)

# For hours, by hand: KERNEL, SECONDS.
SECONDS ?= 3600
.PHONY: fuzz
fuzz: modules selftests
	tools/fuzz $(KERNEL) $(SECONDS)

# KVERS was read before the headers were installed: hence make once more.
.PHONY: lint lint-installed
lint:
	@tools/install-deps lint
	+@$(MAKE) --no-print-directory lint-installed
lint-installed: $(KSELFTEST)
	+@MAKE='$(MAKE)' KVERS='$(KVERS)' tools/lint

.PHONY: install
install: lib tools
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(INCLUDEDIR)/linux $(DESTDIR)$(UDEVDIR)
	install -m 644 include/kcollring.h $(DESTDIR)$(INCLUDEDIR)/
	install -m 644 uapi/linux/kcollring.h $(DESTDIR)$(INCLUDEDIR)/linux/
	install -m 644 $(B)/lib/libkcollring.a $(DESTDIR)$(LIBDIR)/
	cp -d $(B)/lib/libkcollring.so* $(DESTDIR)$(LIBDIR)/
	$(if $(TOOLS),install -m 755 $(TOOLS) $(DESTDIR)$(BINDIR)/)
	install -m 644 tools/udev/60-kcollring.rules $(DESTDIR)$(UDEVDIR)/

.PHONY: clean
clean:
	rm -rf build

.PHONY: help
help:
	@echo 'make                modules for every kernel with headers, library, tools'
	@echo 'make KVER=release   the same with the module for one kernel only'
	@echo 'make demo           train on 4 ranks through the module in a VM'
	@echo 'make check          the tests: on this host, in VMs with 6.12 and 6.1, on'
	@echo '                    several nodes with each'
	@echo 'make check-debug    the library under sanitizers; a part of the rest on a debug'
	@echo '                    kernel, which is built when it is'
	@echo '                    missing, and which lines of the modules ran'
	@echo 'make check-all      check and check-debug'
	@echo 'make check-host     the tests that need no module and no VM'
	@echo 'make check-asan     the library under the address and undefined sanitizers;'
	@echo '                    check-tsan: under the one for threads'
	@echo 'make check-vm       one kernel: KERNEL=6.12 (default) or KERNEL=6.1'
	@echo 'make check-cluster  the tests of several nodes, with one kernel'
	@echo 'make check-long     all tests, in their long forms; those of the module on the'
	@echo '                    debug kernel, those that race on one with KCSAN, too'
	@echo 'make coverage       the table of lines that the last check-debug left'
	@echo 'make bench          messages against the bare CPUs, on this host'
	@echo 'make bench-vm       the mesh against perftest, between two VMs: KERNEL=6.12'
	@echo 'make fuzz           random programs and peers, in a VM: KERNEL=6.12 SECONDS=3600'
	@echo 'make lint           checkpatch, sparse, W=1, analysers, ABI, shellcheck'
	@echo 'make deps           install the Debian packages that are missing'
	@echo 'make install        library, headers, tools, udev rule: PREFIX= DESTDIR='
	@echo 'make clean          remove build/'
