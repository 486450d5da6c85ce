"""sniff.py INTERFACE SECONDS: how many frames with faults_rank's data pass there, in the clear. Its elements of
32 bits grow by the same step, modulo 2^32."""
import socket
import struct
import sys
import time

STEP = 2246822519
ROW = 8  # elements that follow each other so: no chance

s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 3))
s.settimeout(0.2)


def is_clear(frame):
    """Looks at one row at each offset near the middle: large messages fill their frames with rows."""
    middle = len(frame) // 2
    for at in range(middle, min(middle + 4, len(frame) - 4 * ROW)):
        row = struct.unpack_from("=%dI" % ROW, frame, at)
        if all((b - a) % 2**32 == STEP for a, b in zip(row, row[1:])):
            return True
    return False


print("ready", flush=True)
until = time.monotonic() + float(sys.argv[2])
frames = clear = 0
while time.monotonic() < until:
    try:
        frame = s.recv(1 << 17)
    except socket.timeout:
        continue
    frames += 1
    clear += is_clear(frame)
print(frames, clear)
