"""The one world of the tests: the real coordinator application and real agents in one process, and what goes between.

Here the test decides when each looks and what each is told. Agents and a coordinator that run by themselves, as people
start them, are `commingle.testing`'s.

transport    calls an application without a socket, or puts one on a socket; requests that fail on their way
applications one application that serves one thing after another: most tests need one, and it takes 50 ms to make
coordinator  the coordinator over a database, its clock, and honest parties that follow the protocol by hand
tampering    the same coordinator with an operator who may lie, forget and overhear: what agents are tested against
consortium   agents with homes and tables on disk around such a coordinator
side         one party's side of the exchange of a moments release, and all sides without a network
exchange     the same parties over HTTP, before such a coordinator
released     a published release made without a round, and the read side of a coordinator over such files
"""
