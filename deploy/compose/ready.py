"""A health check: whether a service is ready, at an address or at the socket of the one home that a directory holds.

Usage: ready.py HOST:PORT or ready.py DIRECTORY. It is asked again and again, so it loads nothing but this.
"""

import socket
import sys
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

where = sys.argv[1]
service = HTTPConnection("agent" if Path(where).is_dir() else where, timeout=5)
if Path(where).is_dir():
    service.sock = socket.socket(socket.AF_UNIX)
    [path] = Path(where).glob("*/agent.sock")
    service.sock.connect(str(path))
service.request("GET", "/readyz")
sys.exit(service.getresponse().status != HTTPStatus.OK)
