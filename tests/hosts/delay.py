"""delay.py A B MS: carries frames between interfaces A and B, each way MS later. What netem does, for kernels
that lack it. With the headers of segmentation and checksum offload, so that frames stay what they are."""
import collections
import select
import socket
import sys
import time

SOL_PACKET, PACKET_VNET_HDR, SO_RCVBUFFORCE, PACKET_OUTGOING = 263, 15, 33, 4
ALL = socket.htons(3)  # ETH_P_ALL


def opened(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    s.bind((interface, 3))
    s.setblocking(False)
    return s


def take(s, queue, to, later):
    """All frames that have come from outside."""
    while True:
        try:
            frame, where = s.recvfrom(1 << 17)
        except BlockingIOError:
            return
        if where[2] != PACKET_OUTGOING:
            queue.append((time.monotonic() + later, to, frame))


def main():
    a, b, later = opened(sys.argv[1]), opened(sys.argv[2]), float(sys.argv[3]) / 1000
    queue = collections.deque()  # in the order of time, since all are as late
    print("ready", flush=True)
    while True:
        wait = max(0, queue[0][0] - time.monotonic()) if queue else None
        for s in select.select([a, b], [], [], wait)[0]:
            take(s, queue, b if s is a else a, later)
        while queue and queue[0][0] <= time.monotonic():
            _, to, frame = queue.popleft()
            try:
                to.send(frame)
            except OSError:
                pass  # no carrier, no room: lost, as on a wire


main()
