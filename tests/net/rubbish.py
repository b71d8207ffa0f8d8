#!/usr/bin/env python3
"""Rubbish to every socket of an agent: garbage, truncated, oversized, deep, with huge lengths, of wrong types,
replayed, from the future. Nothing of what it shows may change, and its memory stays as it is.

rubbish.py BIN [SEED]: loopback only. Exits 77 where python has not zmq and msgpack."""
import os
import random
import resource
import socket
import struct
import sys
import tempfile
import time

import peer
from peer import ME, Asker, Publisher, eventually, msgpack, zmq

MESSAGES = 1000
MEMORY = 1 << 30  # of addresses: what its threads' stacks take is most of it
GROWTH_KIB = 2048
FUTURE = 2**53 - 1
context = peer.context


# ---- messages ---------------------------------------------------------------------------------


def nested(depth):
    return b"\x91" * depth + b"\xc0"


def requests(draw):
    """Well-formed ones that change nothing, not even where one thing in them is left out."""
    lease = "z4:" + "".join(draw.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(25)) + "e"
    return [
        {"v": 1, "op": "hello", "req": draw.randbytes(16)},
        {"v": 1, "op": "status", "req": draw.randbytes(16)},
        {"v": 1, "op": "fetch", "req": draw.randbytes(16), "provider": "z4", "part": 0},
        {"v": 1, "op": "renew", "req": draw.randbytes(16), "provider": "z4", "lease": lease, "ttl_ms": 5000},
        {"v": 1, "op": "release", "req": draw.randbytes(16), "provider": "z4", "lease": lease},
        {"v": 2, "op": "verify", "req": draw.randbytes(16), "provider": "z4"},
        {"v": 1, "op": "verify", "req": draw.randbytes(16), "provider": "elsewhere", "epoch": FUTURE},
        {"v": 1, "op": "verify", "req": draw.randbytes(16), "provider": "z4", "units": FUTURE, "ttl_ms": FUTURE},
        {"v": 1, "op": "acquire", "req": draw.randbytes(16), "provider": "z4", "units": 1000, "epoch": 1,
         "lease": lease},
        {"v": 1, "op": "forget", "req": draw.randbytes(16), "name": "nobody"},
    ]


def lease_map(draw, state="dispatched", **fields):
    text = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(25))
    return {"id": "z4:" + text + "e", "state": state, "host": "snake", "label": "x" * 127, "units": 1,
            "left_ms": 30000, **fields}


def published(draw):
    """What a peer may not say: of a provider that it does not own, or of another time."""
    state = {"v": 1, "op": "state", **ME, "provider": "z4", "epoch": FUTURE, "version": FUTURE, "part": 0,
             "parts": 1, "total": 1, "slots": 0, "leases": [lease_map(draw)]}
    foreign = dict(ME, id=draw.randbytes(16), name="unheard")
    return [
        ("state/z4", state),
        ("state/z4", dict(state, epoch=1, version=1)),
        ("state/z4", dict(state, parts=64, part=63)),
        ("claim/z4", {"v": 1, "op": "claim", **ME, "provider": "z4", "epoch": FUTURE,
                      "lease": lease_map(draw, units=1000)}),
        ("claim/z4", {"v": 1, "op": "claim", **ME, "provider": "z4", "epoch": 1,
                      "lease": lease_map(draw, units=1000)}),
        ("claim/z4", {"v": 1, "op": "claim", **foreign, "provider": "z4", "lease": lease_map(draw)}),
        ("claim/z4", {"v": 1, "op": "claim", **ME, "provider": "z4",
                      "lease": lease_map(draw, units=1024)}),
        ("claim/no", {"v": 1, "op": "claim", **ME, "provider": "no", "lease": lease_map(draw)}),
        ("claim/z4", {"v": 2, "op": "claim", **ME, "provider": "z4", "lease": lease_map(draw)}),
        ("beat/x", {"v": 1, "op": "beat", "id": b"", "name": "x", "incarnation": 1}),
        ("beat/x", {"v": 1, "op": "beat", **foreign, "name": "no such name!", "port": 70000}),
    ]


WRONG = [None, True, -1, 2**64 - 1, 1.5, "text", b"bytes", [], {}, [[[[[]]]]], "x" * 3000, {"a": {"b": {"c": {}}}}]


def spoil(draw, message):
    """One of them in bytes, and what is wrong with it."""
    packed = msgpack.packb(message)
    kind = draw.randrange(7)
    if kind == 0:
        return draw.randbytes(draw.randrange(2000))
    if kind == 1:
        return packed[: draw.randrange(len(packed))]
    if kind == 2:
        return nested(draw.choice([5, 100, 10000]))
    if kind == 3:
        head = draw.choice([b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
        return head + struct.pack(">I", draw.choice([2**32 - 1, 2**31, 10**6])) + packed
    if kind == 4:
        key = draw.choice([key for key in message if key not in ("op", "v")] or ["req"])
        return msgpack.packb(dict(message, **{key: draw.choice(WRONG)}))
    if kind == 5:
        place = draw.randrange(len(packed))
        return packed[:place] + draw.randbytes(1 + draw.randrange(8)) + packed[place:]
    return packed


# ---- sockets ----------------------------------------------------------------------------------


class Dealer:
    """Sends without waiting, and reads what comes back so that nothing piles up."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.open()

    def open(self):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.SNDTIMEO, 5000)
        self.socket.connect(self.endpoint)

    def send(self, *frames):
        self.socket.send_multipart(frames)
        while self.socket.poll(0):
            self.socket.recv_multipart()

    def oversized(self, size):
        """The connection is dropped for it; whoever wants goes on with another one."""
        self.socket.send(b"\x00" * size)
        self.socket.poll(50)
        self.socket.close(linger=1000)
        self.open()


def ask_rubbish(draw, dealer, replays):
    for number in range(MESSAGES):
        message = draw.choice(requests(draw))
        bytes_ = spoil(draw, message)
        replays.append(bytes_)
        if number % 10 == 0:
            bytes_ = draw.choice(replays)
        dealer.send(*draw.choice([[b"", bytes_], [bytes_], [b"id", b"", bytes_], [b"", bytes_, b"more"]]))
        if number % 100 == 99:
            dealer.oversized(draw.choice([65537, 200000]))
    del replays[:-100]


def publish_rubbish(draw, tells, replays):
    for number in range(MESSAGES):
        topic, message = draw.choice(published(draw))
        bytes_ = spoil(draw, message)
        replays.append((topic, bytes_))
        if number % 10 == 0:
            topic, bytes_ = draw.choice(replays)
        frames = [topic.encode(), bytes_]
        if number % 7 == 0:
            frames = draw.choice([[bytes_], frames + [b"more"], [draw.randbytes(200), bytes_], [b"", b""]])
        tells.socket.send_multipart(frames)
        if number % 64 == 63:
            time.sleep(0.02)  # a peer that floods is cut short, and this should be read
    del replays[:-100]


def no_zeromq(draw, endpoint):
    host, port = endpoint[len("tcp://"):].rsplit(":", 1)
    for bytes_ in b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, draw.randbytes(5000), b"":
        with socket.create_connection((host, int(port)), timeout=5) as stranger:
            stranger.sendall(bytes_)


# ---- the agent --------------------------------------------------------------------------------


def memory_kib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as lines:
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def looks(agent):
    """All that it shows, but for what passes with time."""
    provider = agent.provider()
    for passing in "heard_ms", "version":
        del provider[passing]
    del provider["capacity"]["age_ms"]
    for entry in provider["leases"]:
        for passing in "age_secs", "dispatched_secs", "left_ms", "idle_secs":
            entry.pop(passing, None)
    return provider, [(one["name"], one["state"]) for one in agent.lease("peers")["peers"]]


def play(draw, agent):
    tells = Publisher()
    asker = Asker(agent.fleet["listen"])
    assert asker.ask("hello", id=ME["id"], beat=msgpack.packb(tells.beat()))["ok"]

    def is_peer():
        tells.publish("beat/snake", **tells.beat())
        return [one for one in agent.lease("peers")["peers"] if one["state"] == "live"]

    eventually(is_peer, "snake is a peer")
    held = asker.ask("verify", provider="z4", label="stays", ttl_ms=600000)
    assert held["verdict"] == "go"
    sockets = [Dealer(agent.fleet["listen"]), Dealer("ipc://%s/agent.ipc" % agent.env["LEASE_DIR"])]
    replays, heard = [[], []], []
    tells.publish("beat/snake", **tells.beat())
    before, memory = looks(agent), 0
    for turn in range(4):
        for dealer, sent in zip(sockets, replays):
            ask_rubbish(draw, dealer, sent)
        tells.publish("beat/snake", **tells.beat())
        publish_rubbish(draw, tells, heard)
        tells.publish("beat/snake", **tells.beat())
        for endpoint in agent.fleet["listen"], agent.fleet["publish"]:
            no_zeromq(draw, endpoint)
        # whoever is well-behaved is answered all the while
        assert asker.ask("status")["ok"]
        assert agent.process.poll() is None, "the agent has ended"
        now = memory_kib(agent.process.pid)
        print("turn %d: %d KiB" % (turn + 1, now))
        memory = now if turn < 2 else memory  # what it needs at all, it has by then
        after = looks(agent)
        assert after == before, "\n%s\n%s" % (before, after)
    assert now - memory < GROWTH_KIB, "it grew by %d KiB" % (now - memory)
    assert asker.ask("renew", provider="z4", lease=held["lease"])["verdict"] == "granted"
    assert asker.ask("release", provider="z4", lease=held["lease"])["verdict"] == "gone"


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    with tempfile.TemporaryDirectory(prefix="lease-rubbish-") as directory:
        agent = peer.Agent(os.path.realpath(sys.argv[1]), directory,
                           lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
        try:
            agent.fleet = eventually(agent.where, "the agent listens")
            play(random.Random(seed), agent)
        finally:
            agent.end()
    print("%d messages to each of three sockets, four times: nothing moved" % MESSAGES)


if __name__ == "__main__":
    main()
