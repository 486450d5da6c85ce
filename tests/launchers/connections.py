#!/usr/bin/env python3
"""Lets this host's kernel hand out 256 ports only, makes most of them the ports of connections, and says "ready".
Takes all that back when its stdin ends. usage: connections.py NUMBER: of connections, 0 to 256."""
import socket
import sys

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
with open(RANGE) as file:
    before = file.read()
with open(RANGE, "w") as file:
    file.write("40000 40255")
server = socket.create_server(("127.0.0.1", 19000), backlog=256)
connections = [socket.create_connection(server.getsockname()) for _ in range(int(sys.argv[1]))]
print("ready", flush=True)
sys.stdin.read()
with open(RANGE, "w") as file:
    file.write(before)
