# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What shell tests have in common: sourced as ./tap.sh, which lies beside them
# when they are installed

number=0

# report STATUS NAME: the next case; its status is that of what was tried.
report()
{
	local verdict=ok

	number=$((number + 1))
	[ "$1" -eq 0 ] || verdict="not ok"
	echo "$verdict $number $2"
	[ "$1" -eq 0 ]
}

# skip_all WHY
skip_all()
{
	echo "1..0 # SKIP $1"
	exit 4
}

# needs_module: over a link that is not there nothing can be tried.
needs_module()
{
	if [ "${KCR_LINK:-shm}" = module ] && ! [ -w /dev/kcollring ]; then
		skip_all "no /dev/kcollring: insmod kcollring.ko"
	fi
}

needs_nodes()
{
	if [ "${KCR_NODES:-1}" -lt 2 ] || [ -z "${KCR_RDMA:-}" ]; then
		skip_all "not on several nodes with RDMA: see kcr-vm --nodes --rdma"
	fi
}

# results FILE: what a table of kcr-perf says but for times: size, elements, type,
# operation and hash.
results()
{
	sed 's/^\[0\] //' "$1" | awk '!/^#/ { print $1, $2, $3, $4, $NF }'
}
