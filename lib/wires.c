// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Wires: a node's RDMA devices, their addresses, and which belong together.
 *
 * Found in sysfs and by getifaddrs(), so that nothing of RDMA need be
 * installed. What pairs is a function of two lists that both ends have, so
 * both compute the same; whether the cables are so is proven when the module
 * connects.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kcr.h"
#include "wires.h"

#define DEVICES	"/sys/class/infiniband"
/* More than any node has; and what a list on the stack would be too large for. */
#define DEVICES_MAX	256

static const unsigned char *bytes_of(const struct wire_end *w, int *bits)
{
	if (w->address.any.sa_family == AF_INET6) {
		*bits = 128;
		return (const unsigned char *)&w->address.v6.sin6_addr;
	}
	*bits = 32;
	return (const unsigned char *)&w->address.v4.sin_addr;
}

static int compare_bits(const unsigned char *a, const unsigned char *b, int bits)
{
	int whole = bits / 8, rest = bits % 8;
	int differ = memcmp(a, b, whole);
	int mask = rest ? 0xff00 >> rest & 0xff : 0;

	if (differ || !rest)
		return differ;
	return (a[whole] & mask) - (b[whole] & mask);
}

/* By family, then network; 0: the two are in one network. */
static int compare_networks(const struct wire_end *a, const struct wire_end *b)
{
	int bits_a, bits_b, differ;
	const unsigned char *x = bytes_of(a, &bits_a), *y = bytes_of(b, &bits_b);

	if (bits_a != bits_b)
		return bits_a - bits_b;
	differ = compare_bits(x, y, a->prefix < b->prefix ? a->prefix : b->prefix);
	return differ ? differ : a->prefix - b->prefix;
}

static int by_network(const void *a, const void *b)
{
	const struct wire_end *x = a, *y = b;
	int differ = compare_networks(x, y), bits, same;
	const unsigned char *a_bytes = bytes_of(x, &bits);
	const unsigned char *b_bytes = bytes_of(y, &same);

	if (!differ)
		differ = memcmp(a_bytes, b_bytes, bits / 8);
	return differ ? differ : strcmp(x->device, y->device);
}

static int prefix_of(const struct sockaddr *mask)
{
	struct wire_end w = { .prefix = 0 };
	const unsigned char *byte;
	int bits, n = 0;

	if (!mask)
		return 0;
	memcpy(&w.address, mask, mask->sa_family == AF_INET6 ?
	       sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	byte = bytes_of(&w, &bits);
	for (int i = 0; i < bits; i++)
		n += byte[i / 8] >> (7 - i % 8) & 1;
	return n;
}

/*
 * Which of an interface's addresses to take: IPv4, else IPv6. A link-local one
 * means something with the name of an interface only, and that differs by node.
 */
static int preference(const struct sockaddr *address)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

	if (!address)
		return 0;
	if (address->sa_family == AF_INET)
		return 2;
	return address->sa_family == AF_INET6 &&
	       !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool find_address(const struct ifaddrs *all, const char *interface,
			 struct wire_end *wire)
{
	int best = 0;

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		int rank = preference(i->ifa_addr);

		if (rank <= best || strcmp(i->ifa_name, interface))
			continue;
		best = rank;
		memset(&wire->address, 0, sizeof(wire->address));
		memcpy(&wire->address, i->ifa_addr, rank == 2 ?
		       sizeof(wire->address.v4) : sizeof(wire->address.v6));
		wire->prefix = prefix_of(i->ifa_netmask);
	}
	return best;
}

/* The first line of a file, whose path is of @format. */
static bool read_line(char *line, size_t size, const char *format, ...)
{
	char path[512];
	va_list args;
	bool found;
	FILE *f;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	f = fopen(path, "re");
	if (!f)
		return false;
	found = fgets(line, size, f);
	fclose(f);
	line[strcspn(line, "\n")] = 0;
	return found && line[0];
}

/* Is this an interface of InfiniBand's, of its device's first port? */
static bool is_ipoib(const char *device, const char *interface)
{
	char type[16], port[16];

	return read_line(type, sizeof(type), DEVICES "/%s/device/net/%s/type", device,
			 interface) && atoi(type) == ARPHRD_INFINIBAND &&
	       read_line(port, sizeof(port), DEVICES "/%s/device/net/%s/dev_port", device,
			 interface) && !atoi(port);
}

/*
 * GIDs of InfiniBand belong to no interface. That of the port is a child of the same
 * device, and so are those for single partitions, whose names follow on its own.
 */
static bool find_ipoib(const char *device, char *name, size_t size)
{
	struct dirent *entry;
	char path[512];
	DIR *dir;

	name[0] = 0;
	snprintf(path, sizeof(path), DEVICES "/%s/device/net", device);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (strlen(entry->d_name) < size && is_ipoib(device, entry->d_name) &&
		    (!name[0] || strcmp(entry->d_name, name) < 0))
			strcpy(name, entry->d_name);
	if (dir)
		closedir(dir);
	return name[0];
}

/* The network interface of a device's first port. */
static bool find_interface(const char *device, char *name, size_t size)
{
	return read_line(name, size, DEVICES "/%s/ports/1/gid_attrs/ndevs/0", device) ||
	       find_ipoib(device, name, size);
}

/* The node's devices, of which a card has room for the first WIRES_LISTED. */
struct devices {
	int count;
	struct wire_end ends[DEVICES_MAX];
};

/* All devices with an address, sorted by network. */
static int list_all(struct devices *list)
{
	struct dirent *entry;
	struct ifaddrs *all;
	char interface[64];
	DIR *dir;

	list->count = 0;
	dir = opendir(DEVICES);
	if (!dir)
		return 0;
	if (getifaddrs(&all)) {
		closedir(dir);
		return kcr_fail(NULL, -errno, "getifaddrs: %s", strerror(errno));
	}
	while (list->count < DEVICES_MAX && (entry = readdir(dir))) {
		struct wire_end *wire = &list->ends[list->count];

		memset(wire, 0, sizeof(*wire));
		if (entry->d_name[0] == '.' ||
		    strlen(entry->d_name) >= sizeof(wire->device))
			continue;
		strcpy(wire->device, entry->d_name);
		if (find_interface(wire->device, interface, sizeof(interface)) &&
		    find_address(all, interface, wire))
			list->count++;
	}
	freeifaddrs(all);
	closedir(dir);
	qsort(list->ends, list->count, sizeof(list->ends[0]), by_network);
	return 0;
}

static char *address_text(const struct wire_end *wire, char text[INET6_ADDRSTRLEN])
{
	int bits;
	const unsigned char *bytes = bytes_of(wire, &bits);

	inet_ntop(wire->address.any.sa_family, bytes, text, INET6_ADDRSTRLEN);
	return text;
}

/* A wire as a card has it: "device address/prefix". */
char *wire_end_text(const struct wire_end *wire, char text[WIRE_TEXT_BYTES])
{
	char address[INET6_ADDRSTRLEN];

	snprintf(text, WIRE_TEXT_BYTES, "%s %s/%d", wire->device,
		 address_text(wire, address), wire->prefix);
	return text;
}

/* The other way. Returns 0, or -EBADMSG. */
int wire_end_parse(const char *text, struct wire_end *wire)
{
	char address[INET6_ADDRSTRLEN];
	int most = 32;

	memset(wire, 0, sizeof(*wire));
	if (sscanf(text, "%63s %45[0-9a-fA-F.:]/%d", wire->device, address,
		   &wire->prefix) != 3)
		return -EBADMSG;
	if (inet_pton(AF_INET, address, &wire->address.v4.sin_addr) == 1) {
		wire->address.any.sa_family = AF_INET;
	} else if (inet_pton(AF_INET6, address,
			     &wire->address.v6.sin6_addr) == 1) {
		wire->address.any.sa_family = AF_INET6;
		most = 128;
	} else {
		return -EBADMSG;
	}
	return wire->prefix < 0 || wire->prefix > most ? -EBADMSG : 0;
}

/* As many as there is room for, and "..." for the rest. */
static char *ends_text(const struct wire_end *ends, int count, char *text,
		       size_t size)
{
	char one[WIRE_TEXT_BYTES];
	size_t at = 0;

	snprintf(text, size, "none");
	for (int i = 0; i < count; i++) {
		size_t n = strlen(wire_end_text(&ends[i], one));

		if (at + n + sizeof(", ...") > size) {
			snprintf(text + at, size - at, ", ...");
			break;
		}
		at += snprintf(text + at, size - at, "%s%s", i ? ", " : "", one);
	}
	return text;
}

/* All of a list in words: "rxe0 10.0.0.1/24, rxe1 10.1.0.1/24". */
char *wires_text(const struct wire_list *list, char *text, size_t size)
{
	return ends_text(list->wires, list->count, text, size);
}

static const struct wire_end *find_named(const struct devices *all,
					 const char *name)
{
	char address[INET6_ADDRSTRLEN];

	for (int i = 0; i < all->count; i++)
		if (!strcmp(all->ends[i].device, name) ||
		    !strcmp(address_text(&all->ends[i], address), name))
			return &all->ends[i];
	return NULL;
}

static bool is_listed(const struct wire_list *list, const struct wire_end *wire)
{
	for (int i = 0; i < list->count; i++)
		if (!strcmp(list->wires[i].device, wire->device))
			return true;
	return false;
}

static int take_named(const struct devices *all, const char *name,
		      struct wire_list *list)
{
	const struct wire_end *wire = find_named(all, name);
	char there[KCR_ERROR_BYTES / 2];

	if (!wire)
		return kcr_fail(NULL, -ENODEV,
				"wires has \"%s\", which is no RDMA device with an address here: there are %s",
				name, ends_text(all->ends, all->count, there,
					  sizeof(there)));
	if (is_listed(list, wire))
		return kcr_fail(NULL, -EINVAL, "wires has \"%s\" twice", name);
	if (list->count == WIRES_LISTED)
		return kcr_fail(NULL, -EINVAL, "wires has more than %d names",
				WIRES_LISTED);
	list->wires[list->count++] = *wire;
	return 0;
}

static int take_all_named(const struct devices *all, const char *wanted,
			  struct wire_list *list)
{
	char *copy = strdup(wanted), *name, *rest = NULL;
	int err = 0;

	if (!copy)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of wires");
	for (name = strtok_r(copy, ", ", &rest); name && !err;
	     name = strtok_r(NULL, ", ", &rest))
		err = take_named(all, name, list);
	free(copy);
	if (!err && !list->count)
		err = kcr_fail(NULL, -EINVAL, "wires is \"%s\", which names none",
			       wanted);
	return err;
}

/**
 * wires_find() - this node's ends of wires
 * @wanted: NULL for all, sorted by network; or names of devices or addresses,
 *	separated by commas, which are taken in that order
 * @list: filled in
 *
 * Returns 0, -ENODEV for a name that is not there, or -EINVAL.
 */
int wires_find(const char *wanted, struct wire_list *list)
{
	struct devices *all = malloc(sizeof(*all));
	int err;

	list->count = 0;
	if (!all)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of wires");
	err = list_all(all);
	if (!err && wanted)
		err = take_all_named(all, wanted, list);
	for (int i = 0; !err && !wanted && i < all->count && i < WIRES_LISTED; i++)
		list->wires[list->count++] = all->ends[i];
	free(all);
	return err;
}

/**
 * wires_have_software() - does a CPU of this node do what a device would?
 * @list: this node's wires
 *
 * Such a device (rdma_rxe, siw) is nobody's child in sysfs.
 */
bool wires_have_software(const struct wire_list *list)
{
	char path[sizeof(DEVICES) + 1 + WIRE_DEVICE_BYTES], target[256];

	for (int i = 0; i < list->count; i++) {
		ssize_t n;

		snprintf(path, sizeof(path), DEVICES "/%s", list->wires[i].device);
		n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = 0;
		if (strstr(target, "/virtual/"))
			return true;
	}
	return false;
}

/* The first of @list in @wire's network that is not taken, or -1. */
static int find_partner(const struct wire_list *list, const bool taken[],
			const struct wire_end *wire)
{
	for (int i = 0; i < list->count; i++)
		if (!taken[i] && !compare_networks(wire, &list->wires[i]))
			return i;
	return -1;
}

/**
 * wires_pair() - which wires two ranks have
 * @a: the lower rank's list
 * @b: the higher one's
 * @same_node: both are of one node: each device is connected to itself
 * @pairs: filled in
 *
 * In the lower rank's order, each with the first of the same network; by index
 * if the two share no network. Returns how many there are.
 */
int wires_pair(const struct wire_list *a, const struct wire_list *b,
	       bool same_node, struct wire_pair pairs[WIRES_LISTED])
{
	bool taken[WIRES_LISTED] = { false };
	int n = 0;

	for (int i = 0; i < a->count && !same_node; i++) {
		int j = find_partner(b, taken, &a->wires[i]);

		if (j < 0)
			continue;
		taken[j] = true;
		pairs[n++] = (struct wire_pair){ &a->wires[i], &b->wires[j] };
	}
	for (int i = 0; !n && i < a->count && i < b->count; i++)
		pairs[i] = (struct wire_pair){ &a->wires[i], &b->wires[i] };
	if (!n)
		n = a->count < b->count ? a->count : b->count;
	return n;
}
