"""A peer of another language: python with zmq and msgpack, knowing proto/README.md alone.

foreign_peer.py DIRECTORY: asks the speaker, exits 0 where all is as the manual has it, 77 where the
modules are not to be had."""
import os
import sys

try:
    import msgpack
    import zmq
except ImportError as missing:
    print(missing)
    sys.exit(77)

context = zmq.Context()


def ask(kind, message):
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 10000)
    socket.connect("ipc://%s/agent.ipc" % sys.argv[1])
    socket.send(msgpack.packb(message))
    reply = msgpack.unpackb(socket.recv())
    socket.close()
    assert reply["v"] == 1 and reply["req"] == message["req"], reply
    return reply


def new(op, **fields):
    return dict(v=1, op=op, req=os.urandom(16), **fields)


for kind in zmq.REQ, zmq.DEALER:
    hello = ask(kind, new("hello", version="foreign", unknown={"a": [1, 2.5, None]}))
    assert hello["op"] == "hello" and hello["ok"] is True, hello
    assert hello["name"] == "m5" and hello["kind"] == "daemon", hello
    assert len(hello["id"]) == 16 and hello["pid"] > 0, hello
status = ask(zmq.REQ, new("status"))
assert status["providers"] == ["z4", "m5"] and status["directory"] == sys.argv[1], status
read = ask(zmq.REQ, new("read", provider="elsewhere"))
assert read["ok"] is False and read["error"] == -5 and "provider" in read["text"], read
refusal = ask(zmq.REQ, new("sell"))
assert refusal["op"] == "refusal" and refusal["ok"] is False and refusal["error"] == -1, refusal
later = new("hello")
later["v"] = 2
assert "version" in ask(zmq.REQ, later)["text"]
