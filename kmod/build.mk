# SPDX-License-Identifier: GPL-2.0
#
# The modules, for each kernel release in KVERS, outside the source tree:
# build/kmod/<release>/kcollring.ko and, where the kernel has RDMA,
# kcollring_verbs.ko. Kbuild writes beside the sources, so each
# release has a folder of links to them.

KMOD_SOURCES := $(wildcard kmod/*.c kmod/*.h) kmod/Kbuild
KMOD_VERBS := $(wildcard kmod/verbs/*.c kmod/verbs/*.h)
KMOD_HEADERS := $(wildcard uapi/linux/*.h)

# A kernel that is not installed: its release in KVER, its build folder in KDIR.
kmod_kdir = $(or $(if $(KVER),$(KDIR)),/lib/modules/$(1)/build)

# $(call kmod_make,release,more arguments of make). BTF needs the vmlinux of the
# kernel, which header packages lack: it would only be told that it is skipped.
kmod_make = $(MAKE) -C $(call kmod_kdir,$(1)) M=$(CURDIR)/build/kmod/$(1) \
	KCR_ROOT=$(CURDIR) W=1 CONFIG_DEBUG_INFO_BTF_MODULES= $(2) modules

# $(call kmod_links,release)
define kmod_links
	@mkdir -p build/kmod/$(1)/verbs
	@find build/kmod/$(1) -maxdepth 2 -type l -delete
	@ln -sf $(addprefix $(CURDIR)/,$(KMOD_SOURCES)) build/kmod/$(1)/
	@ln -sf $(addprefix $(CURDIR)/,$(KMOD_VERBS)) build/kmod/$(1)/verbs/
endef

build/kmod/%/kcollring.ko: $(KMOD_SOURCES) $(KMOD_VERBS) $(KMOD_HEADERS)
	$(call kmod_links,$*)
	+@$(call kmod_make,$*,-s)
	@touch $@

.PHONY: sparse checkpatch
sparse: $(KVERS:%=sparse-%)

# In a folder of its own: C=2 checks what need not be compiled, too.
.PHONY: $(KVERS:%=sparse-%)
$(KVERS:%=sparse-%): sparse-%:
	$(call kmod_links,$*)
	+@$(call kmod_make,$*,-s C=2 CF=-Wsparse-error)

CHECKPATCH := build/kselftest/scripts/checkpatch.pl
# compat.h is the one place that may look at the kernel's version.
checkpatch: kselftest
	perl $(CHECKPATCH) --no-tree --strict --quiet --file \
		$(filter-out kmod/compat.h,$(wildcard kmod/*.c kmod/*.h)) \
		$(KMOD_VERBS) \
		uapi/linux/kcollring.h
	perl $(CHECKPATCH) --no-tree --strict --quiet --file \
		--ignore LINUX_VERSION_CODE,CONSTANT_COMPARISON \
		kmod/compat.h
