"""For the tests of pictures: a check that says what is wrong, and a run of tests, each with a folder of its own."""
import sys
import tempfile

SVG = "{http://www.w3.org/2000/svg}"


def check(true, *what):
    if not true:
        raise AssertionError(" ".join(map(str, what)))


def run(*tests):
    failures = 0
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(folder)
                print("ok", test.__name__)
            except Exception as error:
                failures += 1
                print("FAILED", test.__name__, type(error).__name__, error)
    sys.exit(1 if failures else 0)
