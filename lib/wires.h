/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Wires: a node's RDMA devices, their addresses, and which belong together.
 */
#ifndef KCR_WIRES_H
#define KCR_WIRES_H

#include <stdbool.h>
#include <stddef.h>
#include <netinet/in.h>
#include <linux/kcollring.h>
#include "kcollring.h"

/* Addresses that a card has room for. */
#define WIRES_LISTED	16

#define WIRE_DEVICE_BYTES	64
#define WIRE_TEXT_BYTES		(WIRE_DEVICE_BYTES + INET6_ADDRSTRLEN + 8)

/**
 * struct wire_end - one end of what may become a wire
 * @device: the RDMA device's name
 * @address: struct sockaddr_in or sockaddr_in6, as the module takes it
 * @prefix: how many bits of the address name its network
 */
struct wire_end {
	char device[WIRE_DEVICE_BYTES];
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		unsigned char bytes[28];
	} address;
	int prefix;
};

struct wire_list {
	int count;
	struct wire_end wires[WIRES_LISTED];
};

struct wire_pair {
	const struct wire_end *a, *b;
};

bool wires_have_software(const struct wire_list *list);
int wires_find(const char *wanted, struct wire_list *list);
int wires_pair(const struct wire_list *a, const struct wire_list *b,
	       bool same_node, struct wire_pair pairs[WIRES_LISTED]);
char *wire_end_text(const struct wire_end *wire, char text[WIRE_TEXT_BYTES]);
int wire_end_parse(const char *text, struct wire_end *wire);
char *wires_text(const struct wire_list *list, char *text, size_t size);

#endif /* KCR_WIRES_H */
