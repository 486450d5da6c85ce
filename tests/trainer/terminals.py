"""Runs on a terminal of the test's own, whose other end stands still for a while or for good: the training goes on, a signal saves, and the
exit code and the last lines are those of any run. Usage: terminals.py WORK TRAIN OPTION..."""
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import time

work, train, options = sys.argv[1], sys.argv[2], sys.argv[3:]
os.chmod(work, 0o777)
PATIENCE = 60
failures = 0


class Run:
    """A run with its streams on a terminal; `out`: a file for the standard output in place of the terminal; `user`: a number."""

    def __init__(self, case, *extra, nonblocking=False, out=None, user=None):
        self.case, self.printed = case, b""
        self.folder, self.log = f"{work}/{case}", f"{work}/{case}.log"
        self.master, slave = pty.openpty()
        if nonblocking:
            fcntl.fcntl(slave, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK)
        given = [f"--checkpoint={self.folder}", *extra]
        if not any(x.startswith("--log=") for x in extra):
            given.append(f"--log={self.log}")
        self.process = subprocess.Popen([train, *options, *given], stdin=slave, stdout=out or slave, stderr=slave, user=user)
        os.close(slave)

    def fail(self, what):
        global failures
        failures += 1
        print(f"{self.case}: {what}\n{self.printed.decode(errors='replace')[-1500:]}")

    def losses(self):
        return open(self.log).read().count('"loss"') if os.path.exists(self.log) else 0

    def await_losses(self, n):
        """Without reading what the run prints. PATIENCE is for the next step."""
        seen, until = 0, time.monotonic() + PATIENCE
        while seen < n and time.monotonic() < until and self.process.poll() is None:
            time.sleep(0.05)
            now = self.losses()
            if now > seen:
                seen, until = now, time.monotonic() + PATIENCE
        if seen < n:
            self.fail(f"stands still after {seen} of {n} steps")

    def read(self, until=None):
        """Reads what the run prints: until that is there, or until the end of the run."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends and not (until and until in self.printed):
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.printed += os.read(self.master, 65536)
                except OSError:
                    return
            elif self.process.poll() is not None:
                return

    def end(self, code, reads=True):
        if reads:
            self.read()
        try:
            got = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            got = "none"
        if got != code:
            self.fail(f"code {got}, expected {code}")
        if not [name for name in os.listdir(self.folder) if name.endswith(".safetensors")]:
            self.fail("no checkpoint")

    def expect(self, text):
        if text not in self.printed:
            self.fail(f"no '{text.decode()}'")


# Nobody reads the other end, as behind a connection that stalls. Saves have lines of their own.
run = Run("unread", "--every=3", "--keep=1", "--log-every=1")
run.await_losses(2000)
run.process.send_signal(signal.SIGTERM)
run.end(-signal.SIGTERM, reads=False)

# Somebody reads again: which lines are lost is said.
run = Run("read-again", "--log-every=1")
run.await_losses(3000)
run.read(b"lines from step")
run.process.send_signal(signal.SIGTERM)
run.end(-signal.SIGTERM)
run.expect(b"lines from step")

# The log holds the terminal as the lines of the steps do.
for ends in "alone", "by a signal":
    run = Run(f"log {ends}", "--log=/dev/stdout", "--log-every=1", *(["--steps=20"] if ends == "alone" else []))
    run.read(b'"loss"')
    if ends != "alone":
        run.process.send_signal(signal.SIGTERM)
    run.end(0 if ends == "alone" else -signal.SIGTERM)
    run.expect(b"done: " if ends == "alone" else b"ended by SIGTERM")

# Other programs leave a terminal so that no write waits: Ctrl-S for a while, and all that follows is there.
run = Run("nonblocking", "--log-every=100", nonblocking=True)
run.read(b"step    100")
os.write(run.master, b"\x13")
run.await_losses(run.losses() + 1000)
os.write(run.master, b"\x11")
run.process.send_signal(signal.SIGTERM)
run.end(-signal.SIGTERM)
run.expect(b"ended by SIGTERM")

# Warnings fill a standard error that nobody reads; so where the terminal is another user's, as behind su.
NOBODY = 65534


def may_run():
    """Whether another user reaches the program and the data here."""
    if os.getuid():
        return False
    data = [x.split("=")[1] for x in options if x.startswith("--data=")][0]
    return subprocess.run(["sh", "-c", 'ls "$1" && [ -x "$0" ]', train, data], user=NOBODY, stdout=subprocess.DEVNULL).returncode == 0


for user in [None, NOBODY] if may_run() else [None]:
    with open(f"{work}/out", "wb") as out:
        run = Run(f"warnings {user}", "--every=1", out=out, user=user)
        run.await_losses(3)
        os.rename(run.folder, f"{run.folder}.away")
        open(run.folder, "w").close()
        run.await_losses(run.losses() + 300)
        os.remove(run.folder)
        os.rename(f"{run.folder}.away", run.folder)
        run.process.send_signal(signal.SIGTERM)
        run.end(-signal.SIGTERM, reads=False)

sys.exit(failures > 0)
