"""A consortium for tests: a coordinator and agents on this machine, in this process or as processes of their own.

from commingle.testing import Consortium

with Consortium({"clinic": patients, "laboratory": results}) as consortium:
    release = consortium.release(consortium.study(target="crp", epsilon=5.0))
"""

from commingle.services.errors import ConsortiumError, ProcessError, RoundError
from commingle.services.testing.consortium import Consortium
from commingle.services.testing.links import Fault, Injected, Link
from commingle.services.testing.nodes import Agent, Coordinator, Dataset, Node

__all__ = [
    "Agent",
    "Consortium",
    "ConsortiumError",
    "Coordinator",
    "Dataset",
    "Fault",
    "Injected",
    "Link",
    "Node",
    "ProcessError",
    "RoundError",
]
