/* Tests of base/status.h: error texts of threads. */
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "shim.h"

static void *fail_elsewhere(void *argument)
{
    char *seen = argument;
    if (tt_last_error()[0]) return NULL;
    (void)tt_fail(TT_ERR_REMOTE, "the other thread's %d", 7);
    snprintf(seen, TT_ERROR_TEXT, "%s", tt_last_error());
    return NULL;
}

TEST(status, every_thread_has_its_own_last_error)
{
    char seen[TT_ERROR_TEXT] = "";
    CHECK_EQ(tt_fail(TT_ERR_ARGUMENT, "this thread's %s", "error"), TT_ERR_ARGUMENT);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, fail_elsewhere, seen) == 0);
    pthread_join(thread, NULL);
    CHECK_STR(seen, "the other thread's 7");
    CHECK_STR(tt_last_error(), "this thread's error");
}

TEST(status, errno_is_shown_in_words_and_as_a_number)
{
    CHECK_EQ(tt_fail_errno(ENOENT, "opening '%s'", "/x"), TT_ERR_SYSTEM);
    CHECK_STR(tt_last_error(), "opening '/x': No such file or directory (errno 2)");
}

TEST(status, an_error_longer_than_the_text_is_cut_not_overrun)
{
    char text[3 * TT_ERROR_TEXT];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_EQ(tt_fail(TT_ERR_INTERNAL, "%s", text), TT_ERR_INTERNAL);
    CHECK_EQ(strlen(tt_last_error()), TT_ERROR_TEXT - 1);
    CHECK_EQ(tt_fail_errno(EIO, "%s", text), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "(errno 5)"));
}

TEST(status, last_error_can_be_set_from_itself_and_cleared)
{
    tt_set_last_error("carried");
    CHECK_STR(tt_last_error(), "carried");
    tt_set_last_error("");
    CHECK_STR(tt_last_error(), "");
}

TEST(status, control_characters_are_shown_as_escapes)
{
    char shown[9];
    (void)tt_fail(TT_ERR_ARGUMENT, "'%s'", "127.0.0.1\r");
    CHECK_STR(tt_last_error(), "'127.0.0.1\\r'");
    tt_set_last_error("a\tb\nc\x1b[31m\x7f\xc2\x9b \xc3\xa9 \\");
    CHECK_STR(tt_last_error(), "a\\tb\\nc\\x1b[31m\\x7f\\x9b \xc3\xa9 \\");
    tt_set_last_error(tt_last_error());
    CHECK_STR(tt_last_error(), "a\\tb\\nc\\x1b[31m\\x7f\\x9b \xc3\xa9 \\");
    CHECK_EQ(tt_escape(shown, sizeof shown, "12345\x01z"), 5); /* an escape is never cut */
    CHECK_STR(shown, "12345");
    CHECK_EQ(tt_escape(shown, sizeof shown, "1234\x01z"), 8);
    CHECK_STR(shown, "1234\\x01");
}

static tt_status tries(tt_status status, bool *reached)
{
    TT_TRY(status);
    *reached = true;
    return TT_OK;
}

static tt_status awaits(tt_status status, bool *reached)
{
    TT_AWAIT(status);
    *reached = true;
    return TT_OK;
}

TEST(status, try_passes_failures_on)
{
    bool reached = false;
    CHECK_EQ(tries(TT_ERR_TIMEOUT, &reached), TT_ERR_TIMEOUT);
    CHECK(!reached);
    CHECK_EQ(tries(TT_OK, &reached), TT_OK);
    CHECK(reached);
}

TEST(status, await_passes_failures_and_progress_on)
{
    bool reached = false;
    CHECK_EQ(awaits(TT_ERR_TIMEOUT, &reached), TT_ERR_TIMEOUT);
    CHECK_EQ(awaits(TT_IN_PROGRESS, &reached), TT_IN_PROGRESS);
    CHECK(!reached);
    CHECK_EQ(awaits(TT_OK, &reached), TT_OK);
    CHECK(reached);
}
