"""strangers.py HOST:PORT...: all that may connect to a listening port without the key, each four times: three at once,
in a flood of connections, and once alone."""
import os
import socket
import struct
import sys
import threading
import time

HELLO = 216  # bytes of a hello
PREAMBLE = 16


def connect(address):
    return socket.create_connection(address, timeout=60)


def preamble(s):
    """The first bytes that the listener itself sends."""
    data = b""
    while len(data) < PREAMBLE:
        more = s.recv(PREAMBLE - len(data))
        if not more:
            raise ConnectionError("closed before it greeted")
        data += more
    return data


def send(s, data):
    """All of it, and waits until the other end closes; it may do so before."""
    try:
        s.sendall(data)
        s.settimeout(20)
        while s.recv(4096):
            pass
    except OSError:
        pass


def changed(data, at, form, change):
    value = struct.unpack_from(form, data, at)[0]
    return data[:at] + struct.pack(form, change(value)) + data[at + struct.calcsize(form):]


def garbage(s):
    send(s, b"GET / HTTP/1.1\r\nHost: tutti\r\n\r\n" + os.urandom(300))


def foreign_key(s):
    send(s, preamble(s) + os.urandom(HELLO - PREAMBLE))


def oversized(s):
    send(s, preamble(s) + os.urandom(1 << 20))


def other_version(s):
    send(s, changed(preamble(s), 8, "=I", lambda v: v + 1) + os.urandom(HELLO))


def other_word_size(s):
    send(s, changed(preamble(s), 14, "=H", lambda v: 4) + os.urandom(HELLO))


def other_byte_order(s):
    send(s, changed(preamble(s), 0, "=Q", lambda v: int.from_bytes(v.to_bytes(8, "big"), "little")) + os.urandom(HELLO))


def slow_loris(s):
    data = preamble(s)
    try:
        for byte in data + bytes(HELLO):
            s.sendall(bytes([byte]))
            time.sleep(0.5)
    except OSError:
        pass


def scan(s):
    s.close()


def attempt(kind, address):
    try:
        kind(connect(address))
    except OSError as error:
        print(f"{kind.__name__} at {address[0]}:{address[1]}: {error}", flush=True)


def flood(address, number):
    """Many at once that say nothing."""
    held = []
    try:
        for _ in range(number):
            held.append(connect(address))
    except OSError:
        pass
    time.sleep(1)


def main():
    addresses = [(host, int(port)) for host, _, port in (a.rpartition(":") for a in sys.argv[1:])]
    kinds = [garbage, foreign_key, oversized, other_version, other_word_size, other_byte_order, slow_loris, scan]
    attempts = [threading.Thread(target=attempt, args=(kind, a)) for n in range(4) for a in addresses for kind in kinds]
    floods = [threading.Thread(target=flood, args=(a, 300)) for a in addresses]
    alone = len(addresses) * len(kinds)  # in a flood a listener may have no patience with who is slow
    for together in attempts[alone:] + floods, attempts[:alone]:
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()


main()
