// SPDX-License-Identifier: GPL-2.0
/* The results of kcr-perf, as the table nccl-tests made familiar and as JSON. */
#include <string.h>

#include <jansson.h>

#include "perf.h"

void table_begin(struct table *table, const struct heading *heading)
{
	const char *place = table->in_place ?
		"    time   algbw   busbw #wrong" : "";
	const char *unit = table->in_place ?
		"           (us)  (GB/s)  (GB/s)" : "";

	table->json = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:i, s:s, s:i, s:b, s:[]}",
				"tool", "kcr-perf", "version", kcr_version(),
				"collective", heading->collective, "ranks", table->ranks,
				"link", heading->link, "algorithm", heading->algorithm,
				"contract", heading->contract,
				"iterations", heading->iterations, "time",
				heading->mean ? "mean" : "median", "warmup", heading->warmup,
				"checked", heading->checked, "rows");
	if (!table->text)
		return;
	fprintf(table->text, "# kcr-perf %s, version %s: %d ranks, link %s, algorithm %s\n",
		heading->collective, kcr_version(), table->ranks, heading->link,
		heading->algorithm);
	fprintf(table->text, "# contract %s%s\n", heading->contract,
		heading->checked ? "" : "; not compared with the oracle");
	fprintf(table->text,
		"# %s of %d iterations after %d to warm up, each the mean of the ranks' times\n",
		heading->mean ? "mean" : "median", heading->iterations, heading->warmup);
	if (table->in_place)
		fprintf(table->text, "#%42s%31s%31s\n", "", "out-of-place         ",
			"in-place           ");
	fprintf(table->text,
		"#%11s%13s%9s%9s%8s%8s%8s%7s%s%18s\n#%11s%13s%9s%9s%8s%8s%8s%s\n",
		"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong",
		place, "hash",
		"(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", unit);
}

void table_part(struct table *table, const char *collective)
{
	if (table->text)
		fprintf(table->text, "# %s\n", collective);
}

static void print_measure(FILE *text, const struct measure *m)
{
	fprintf(text, " %8.*f %7.3f %7.3f %6llu",
		m->time_us < 10000 ? 2 : 0, m->time_us, m->algbw, m->busbw,
		(unsigned long long)m->wrong);
}

static void print_row(const struct table *table, const struct row *row)
{
	fprintf(table->text, "%12zu%13zu%9s%9s", row->size, row->count,
		row->type ? row->type : "-", row->redop ? row->redop : "-");
	print_measure(table->text, &row->out_of_place);
	if (row->has_in_place)
		print_measure(table->text, &row->in_place);
	else if (table->in_place)
		fprintf(table->text, " %8s %7s %7s %6s", "-", "-", "-", "-");
	if (row->type)
		fprintf(table->text, "  %016llx\n",
			(unsigned long long)row->out_of_place.hash[0]);
	else
		fprintf(table->text, "  %16s\n", "-");
}

static json_t *hash_text(uint64_t hash)
{
	char text[17];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash);
	return json_string(text);
}

static void add_json(const struct table *table, const struct row *row,
		     const struct measure *m, bool in_place)
{
	json_t *hashes = json_array(), *value;
	int i;

	for (i = 0; row->type && i < table->ranks; i++)
		json_array_append_new(hashes, hash_text(m->hash[i]));
	value = json_pack("{s:s, s:I, s:I, s:s?, s:s?, s:b, s:f, s:f, s:f, s:f, s:f, s:I, s:O?, s:o}",
			  "collective", row->collective,
			  "size", (json_int_t)row->size, "count", (json_int_t)row->count,
			  "type", row->type, "redop", row->redop, "in_place", in_place,
			  "time_us", m->time_us, "min_us", m->min_us, "max_us", m->max_us,
			  "algbw", m->algbw, "busbw", m->busbw, "wrong", (json_int_t)m->wrong,
			  "hash", json_array_get(hashes, 0), "hashes", hashes);
	json_array_append_new(json_object_get(table->json, "rows"), value);
}

/* @reference is rank 0's hash out of place: all must have that one. */
static void say_differences(struct table *table, const struct row *row,
			    const struct measure *m, uint64_t reference,
			    const char *place)
{
	int i;

	for (i = 0; row->type && i < table->ranks; i++) {
		if (m->hash[i] == reference)
			continue;
		table->hashes_differ = true;
		fprintf(stderr, "kcr-perf: %s, %zu bytes of %s, %s: rank %d has the hash %016llx, not %016llx\n",
			row->collective, row->size, row->type, place, i,
			(unsigned long long)m->hash[i],
			(unsigned long long)reference);
	}
}

static void add_measure(struct table *table, const struct row *row,
			const struct measure *m, bool in_place)
{
	say_differences(table, row, m, row->out_of_place.hash[0],
			in_place ? "in place" : "out of place");
	table->wrong += m->wrong;
	table->busbw_sum += m->busbw;
	table->busbw_count++;
	add_json(table, row, m, in_place);
}

void table_row(struct table *table, const struct row *row)
{
	add_measure(table, row, &row->out_of_place, false);
	if (row->has_in_place)
		add_measure(table, row, &row->in_place, true);
	if (table->text) {
		print_row(table, row);
		fflush(table->text);
	}
}

static bool write_json(const struct table *table)
{
	bool to_stdout = !strcmp(table->json_path, "-");
	FILE *file = to_stdout ? stdout : fopen(table->json_path, "we");
	bool good;

	if (!file) {
		perror(table->json_path);
		return false;
	}
	good = !json_dumpf(table->json, file, JSON_INDENT(2)) &&
	       fputc('\n', file) != EOF && !fflush(file);
	if (!good)
		perror(table->json_path);
	if (!to_stdout && fclose(file)) {
		perror(table->json_path);
		good = false;
	}
	return good;
}

bool table_end(struct table *table)
{
	bool good = !table->wrong && !table->hashes_differ;

	if (table->text) {
		fprintf(table->text, "# average bus bandwidth %.3f GB/s\n",
			table->busbw_count ? table->busbw_sum / table->busbw_count : 0);
		fprintf(table->text, "# wrong %llu, hashes %s: %s\n",
			(unsigned long long)table->wrong,
			table->hashes_differ ? "differ" : "equal",
			good ? "OK" : "FAILED");
	}
	json_object_set_new(table->json, "wrong", json_integer((json_int_t)table->wrong));
	json_object_set_new(table->json, "ok", json_boolean(good));
	if (table->json_path)
		good &= write_json(table);
	json_decref(table->json);
	return good && !(table->text && ferror(table->text));
}
