/* Registers the C tests of shim.h with GoogleTest, and reports their failures to it. */
#include "shim.h"

#include <cstdarg>
#include <cstdio>

#include <gtest/gtest.h>
#include <unistd.h>

namespace {
unsigned nasked; // by tt_test_share, in the running test

class Body : public testing::Test {
  public:
    explicit Body(void (*body)(void)) : body_(body) {}
    void TestBody() override
    {
        nasked = 0;
        body_();
    }

  private:
    void (*body_)(void);
};
} // namespace

extern "C" void tt_test_register(const char *suite, const char *name, const char *file, int line,
                                 void (*body)(void))
{
    testing::RegisterTest(suite, name, nullptr, nullptr, file, line, [body]() -> Body * { return new Body(body); });
}

extern "C" void tt_test_fail(const char *file, int line, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ADD_FAILURE_AT(file, line) << text;
}

extern "C" void tt_test_skip(const char *file, int line, const char *why)
{
    fprintf(stderr, "%s:%d: skipped: %s\n", file, line, why);
    GTEST_SKIP() << why;
}

extern "C" bool tt_test_failed(void)
{
    return testing::Test::HasFailure();
}

extern "C" bool tt_test_sanitized(void)
{
#ifdef TT_SANITIZED
    return true;
#else
    return false;
#endif
}

extern "C" bool tt_test_share(unsigned n)
{
    // A scrambled number: a plain count would take the same places of every inner loop that n divides.
    const unsigned scrambled = (nasked * 2654435761u ^ nasked >> 3) * 2246822519u >> 16;
    return !tt_test_sanitized() || nasked++ == 0 || scrambled % n == 0;
}

extern "C" void tt_test_pause(void)
{
    usleep(100);
}

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
