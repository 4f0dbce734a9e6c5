"""A clinic's health check: whether the agent is ready, the socket of which is in the one home that a directory holds.

Usage: ready.py DIRECTORY. It is asked every other second, so it loads nothing but this.
"""

import socket
import sys
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

agent = HTTPConnection("agent")
agent.sock = socket.socket(socket.AF_UNIX)
[path] = Path(sys.argv[1]).glob("*/agent.sock")
agent.sock.connect(str(path))
agent.request("GET", "/readyz")
sys.exit(agent.getresponse().status != HTTPStatus.OK)
