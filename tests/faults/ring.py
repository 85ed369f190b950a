"""Ranks that hold on to each other: when one is gone, the others notice and die of it, as ranks of a real
framework do.

Each also has a child, and a grandchild in a session of its own, which must not outlive it.
"""

import os
import select
import socket
import subprocess
import sys
import time

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"])
peers = []
if rank == 0:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(ranks - 1)]
else:
    while not peers:
        try:
            peers = [socket.create_connection(address)]
        except OSError:
            time.sleep(0.02)
print("ready", flush=True)
if "--finish" in sys.argv and os.environ["ECHELON_RESTART"] != "0":
    time.sleep(0.2)
    sys.exit(0)
while True:
    for peer in select.select(peers, [], [])[0]:
        if not peer.recv(1):
            raise ConnectionResetError(104, "Connection reset by peer")
