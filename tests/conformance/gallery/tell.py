"""Asks for a path of a port of this machine, and waits for what is said: `python -I -S tell.py PORT PATH`."""

import socket
import sys

if __name__ == "__main__":
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as asking:
        asking.sendall(f"GET {sys.argv[2]} HTTP/1.0\r\n\r\n".encode())
        sys.exit(0 if asking.recv(1024) else "nothing was said")
