// SPDX-License-Identifier: GPL-2.0
/*
 * KCR_FOLD: which form of the fold runs
 *
 * The choice is made when the library is loaded, so each case runs this
 * program again, as "fold_form --say", which tells what it got.
 *
 * Budget: 2 seconds.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "cpu.h"
#include "kcollring.h"

static int has_avx512(void)
{
	return cpu_has("avx512f") && cpu_has("avx512bw") &&
	       cpu_has("avx512dq") && cpu_has("avx512vl");
}

static const char *widest(void)
{
#if defined(__x86_64__)
	if (has_avx512())
		return "avx512";
	if (cpu_has("avx2"))
		return "avx2";
#elif defined(__aarch64__)
	return "neon";
#endif
	return "scalar";
}

/* "form, error of kcr_world_create(), its sentence" */
static int say(void)
{
	struct kcr_world *world = NULL;
	int err = kcr_world_create(NULL, &world);

	printf("%s|%d|%s", kcr_fold_form(), err, err ? kcr_error(NULL) : "");
	kcr_world_destroy(world);
	return 0;
}

/* Run this program with KCR_FOLD=@wanted (NULL: unset), and read what it says. */
static const char *ask(const char *wanted)
{
	static char answer[1024];
	int ends[2];
	ssize_t n, at = 0;
	pid_t pid;

	if (pipe(ends))
		return "pipe";
	pid = fork();
	if (pid < 0)
		return "fork";
	if (!pid) {
		if (wanted)
			setenv("KCR_FOLD", wanted, 1);
		else
			unsetenv("KCR_FOLD");
		dup2(ends[1], 1);
		execl("/proc/self/exe", "fold_form", "--say", NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((n = read(ends[0], answer + at, sizeof(answer) - 1 - at)) > 0)
		at += n;
	close(ends[0]);
	answer[at] = '\0';
	waitpid(pid, NULL, 0);
	return answer;
}

static void expect_form(struct __test_metadata *_metadata, const char *wanted,
			const char *form)
{
	char want[64];

	snprintf(want, sizeof(want), "%s|0|", form);
	EXPECT_STREQ(want, ask(wanted));
}

TEST(widest_is_chosen)
{
	expect_form(_metadata, NULL, widest());
	expect_form(_metadata, "", widest());
}

TEST(scalar)
{
	expect_form(_metadata, "scalar", "scalar");
	expect_form(_metadata, "SCALAR", "scalar");
}

TEST(vector_forms)
{
	if (cpu_has("avx2"))
		expect_form(_metadata, "avx2", "avx2");
	if (has_avx512())
		expect_form(_metadata, "avx512", "avx512");
	if (!strcmp(widest(), "neon"))
		expect_form(_metadata, "neon", "neon");
}

/* The form that is not there: no fallback, and the sentence has those that are. */
static void expect_refused(struct __test_metadata *_metadata, const char *wanted)
{
	const char *answer = ask(wanted), *text;
	char quoted[64];
	int err;

	text = strchr(answer, '|');
	ASSERT_NE(NULL, text);
	err = atoi(text + 1);
	EXPECT_EQ(-EINVAL, err);
	snprintf(quoted, sizeof(quoted), "KCR_FOLD is \"%s\"", wanted);
	EXPECT_NE(NULL, strstr(text, quoted)) {
		TH_LOG("%s", answer);
	}
	EXPECT_NE(NULL, strstr(text, "scalar"));
	EXPECT_NE(NULL, strstr(text, widest()));
	if (cpu_has("avx2"))
		EXPECT_NE(NULL, strstr(text, "avx2"));
}

TEST(unknown_is_refused)
{
	expect_refused(_metadata, "sse9");
	expect_refused(_metadata, "avx");
	expect_refused(_metadata, "avx2 ");
	expect_refused(_metadata, "0");
}

TEST(unavailable_is_refused)
{
#if defined(__x86_64__)
	expect_refused(_metadata, "neon");
	if (!has_avx512())
		expect_refused(_metadata, "avx512");
	if (!cpu_has("avx2"))
		expect_refused(_metadata, "avx2");
#else
	expect_refused(_metadata, "avx2");
#endif
}

/* The choice has been made: a wish that comes later is refused, as just that. */
TEST(too_late)
{
	const char *other = strcmp(kcr_fold_form(), "scalar") ? "scalar" : widest();
	struct kcr_world *world = NULL;

	if (!strcmp(other, kcr_fold_form()))
		SKIP(return, "this CPU has one form only");
	setenv("KCR_FOLD", other, 1);
	EXPECT_EQ(-EINVAL, kcr_world_create(NULL, &world));
	EXPECT_EQ(NULL, world);
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "after the library was loaded")) {
		TH_LOG("%s", kcr_error(NULL));
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--say"))
		return say();
	puts("# budget: 2 s");
	fflush(stdout);
	return test_harness_run(argc, argv);
}
