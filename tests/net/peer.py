#!/usr/bin/env python3
"""A peer in another language, written from proto/README.md alone: it asks an owner by TCP, hears what it
publishes, joins, and tells of a lease of its own.

peer.py BIN: the folder of the programs. Needs no network but loopback and no privileges. Exits 77 where python
has not both modules."""
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import msgpack
    import zmq
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

PATIENCE_S = 20
context = zmq.Context()
ME = {"id": os.urandom(16), "name": "snake", "incarnation": 4711}


# ---- asking -----------------------------------------------------------------------------------


class Asker:
    def __init__(self, endpoint, kind=zmq.REQ):
        self.socket = context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, PATIENCE_S * 1000)
        self.socket.connect(endpoint)

    def send(self, message):
        self.socket.send(msgpack.packb(message))
        reply = msgpack.unpackb(self.socket.recv())
        assert reply["v"] == 1 and reply["req"] == message["req"], reply
        return reply

    def ask(self, op, **fields):
        reply = self.send({"v": 1, "op": op, "req": os.urandom(16), "name": "snake", **fields})
        assert reply["op"] == op, reply
        return reply


# ---- listening --------------------------------------------------------------------------------


class Listener:
    """Hears all topics; what is wanted is looked for until it comes."""

    def __init__(self, endpoint):
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        self.socket.connect(endpoint)

    def await_one(self, topic, wanted=lambda message: True):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if not self.socket.poll(100):
                continue
            name, body = self.socket.recv_multipart()
            message = msgpack.unpackb(body)
            assert message["v"] == 1 and len(body) <= 49152
            if name.decode() == topic and wanted(message):
                return message
        raise AssertionError("never heard " + topic)


class Publisher:
    def __init__(self):
        self.socket = context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")

    def publish(self, topic, **fields):
        message = {"v": 1, **ME, **fields}
        self.socket.send_multipart([topic.encode(), msgpack.packb(message)])

    def beat(self):
        return {
            "v": 1,
            "op": "beat",
            **ME,
            "version": "0.0.1",
            "publish": "tcp://127.0.0.1:%d" % self.port,
            "publish_port": self.port,
        }


# ---- the agent --------------------------------------------------------------------------------


def eventually(look, what):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("never true: " + what)


class Agent:
    def __init__(self, programs, directory, prepare=None):
        self.programs = programs
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LEASE_")}
        self.env.update(LEASE_DIR=directory, HOME=directory, XDG_STATE_HOME=directory,
                        XDG_CONFIG_HOME=directory)
        self.process = subprocess.Popen(
            [os.path.join(programs, "lease-agent"), "--name", "z4", "--listen", "tcp://127.0.0.1:0",
             "--publish", "tcp://127.0.0.1:0", "--provider", "z4=static:2,own=yes"], env=self.env, preexec_fn=prepare)
        self.fleet = None

    def lease(self, *words):
        done = subprocess.run([os.path.join(self.programs, "lease"), *words, "--json"], env=self.env,
                              stdout=subprocess.PIPE, timeout=PATIENCE_S, check=False)
        return json.loads(done.stdout)

    def where(self):
        fleet = self.lease("status")["fleet"]
        return fleet if fleet and fleet.get("listen") and fleet.get("publish") else None

    def provider(self):
        return self.lease("fleet")["providers"][0]

    def end(self):
        self.process.kill()
        self.process.wait()


# ---- what is shown ----------------------------------------------------------------------------


def says_who_it_is(asker):
    hello = asker.ask("hello", unknown={"a": [1, 2.5, None]})
    assert hello["ok"] is True and hello["name"] == "z4" and hello["kind"] == "daemon", hello
    assert len(hello["id"]) == 16 and hello["pid"] > 0, hello
    status = asker.ask("status")
    assert status["ok"] and status["providers"] == ["z4"] and status["uptime_ms"] >= 0, status
    newer = {"v": 2, "op": "hello", "req": os.urandom(16)}
    reply = asker.send(newer)
    assert reply["ok"] is False and reply["text"], reply
    return hello["id"]


def goes_once(asker, agent):
    request = {"v": 1, "op": "verify", "req": os.urandom(16), "name": "snake", "provider": "z4",
               "label": "first", "holder_pid": 99, "budget_ms": 1000, "ttl_ms": 20000}
    first = asker.send(request)
    assert first["ok"] and first["verdict"] == "go" and first["dispatched"], first
    assert 19000 <= first["left_ms"] <= 20000 and first["lease"].startswith("z4:"), first
    again = asker.send(request)
    for same in "lease", "token", "verdict":
        assert again[same] == first[same], (first, again)
    mine = [entry for entry in agent.provider()["leases"] if entry["id"] == first["lease"]]
    assert len(mine) == 1 and mine[0]["host"] == "snake" and mine[0]["label"] == "first", mine
    return first


def is_refused(asker, first):
    second = asker.ask("verify", provider="z4", label="second")
    assert second["verdict"] == "go" and second["token"] > first["token"], second
    third = asker.ask("verify", provider="z4", label="third")
    assert third["ok"] and third["verdict"] == "no" and third["text"], third
    assert not third.get("undecided"), third
    seen = msgpack.unpackb(third["state"])
    assert seen["op"] == "state" and len(seen["leases"]) == 2 and seen["slots"] == 2, seen
    return second


def stands_in_the_queue(asker, endpoint, second):
    waiter = Asker(endpoint, zmq.DEALER)
    request = {"v": 1, "op": "verify", "req": os.urandom(16), "name": "snake", "provider": "z4",
               "label": "waits", "wait_ms": 15000}
    waiter.socket.send(msgpack.packb(request))
    assert waiter.socket.poll(300) == 0, "answered at once"
    assert asker.ask("release", provider="z4", lease=second["lease"])["verdict"] == "gone"
    reply = msgpack.unpackb(waiter.socket.recv())
    assert reply["verdict"] == "go" and reply["waited_ms"] >= 200, reply
    assert asker.ask("release", provider="z4", lease=reply["lease"])["verdict"] == "gone"


def fetches(asker, hears):
    whole = asker.ask("fetch", provider="z4")
    assert whole["ok"] and whole.get("part", 0) == 0 and whole["parts"] == 1, whole
    state = msgpack.unpackb(whole["state"])
    assert state["provider"] == "z4" and state["op"] == "state", state
    about = asker.ask("fetch")
    beat, peers = msgpack.unpackb(about["beat"]), msgpack.unpackb(about["peers"])
    assert beat["name"] == "z4" and peers["op"] == "peers", (beat, peers)
    heard = hears.await_one("beat/z4")
    assert heard["id"] == beat["id"] and heard["offers"][0]["provider"] == "z4", heard


def renews_and_releases(asker, hears, lease):
    renewed = asker.ask("renew", provider="z4", lease=lease, ttl_ms=30000)
    assert renewed["verdict"] == "granted" and renewed["left_ms"] > 29000, renewed
    assert asker.ask("release", provider="z4", lease=lease)["verdict"] == "gone"
    hears.await_one("state/z4", lambda state: state["leases"] == [])
    assert asker.ask("renew", provider="z4", lease=lease)["verdict"] == "gone"
    assert asker.ask("verify", provider="z4", lease=lease)["verdict"] == "gone"
    assert asker.ask("release", provider="z4", lease=lease)["verdict"] == "gone"


def knows_no_other(asker):
    other = asker.ask("verify", provider="elsewhere")
    assert other["ok"] is False and other["error"] < 0 and other["text"], other
    wrong = asker.ask("verify", provider="z4", units=5000)
    assert wrong["ok"] is False and wrong["text"], wrong


def joins(asker, agent):
    """With its beat in a hello it is a peer, and what it claims is seen until the owner has it."""
    tells = Publisher()
    assert asker.ask("hello", id=ME["id"], beat=msgpack.packb(tells.beat()))["ok"]

    def is_peer():
        tells.publish("beat/snake", **tells.beat())
        return [peer for peer in agent.lease("peers")["peers"]
                if peer["name"] == "snake" and peer["state"] == "live"]

    peer = eventually(is_peer, "snake is a live peer")[0]
    assert peer["id"] == ME["id"].hex(), peer
    epoch = agent.provider()["epoch"]
    claimed = "z4:" + "a" * 12 + "e" + "a" * 12 + "e"
    lease = {"id": claimed, "state": "held", "host": "snake", "label": "hint", "units": 1, "ttl_ms": 10000,
             "left_ms": 8000, "age_ms": 5}

    def claim(withdrawn):
        tells.publish("claim/z4", op="claim", provider="z4", epoch=epoch, lease=lease, withdrawn=withdrawn)
        return [entry for entry in agent.provider()["leases"] if entry["label"] == "hint"]

    seen = eventually(lambda: claim(False), "the claim is seen")
    assert seen[0]["id"] == claimed and seen[0]["host"] == "snake", seen
    eventually(lambda: not claim(True), "the claim is withdrawn")


def main():
    with tempfile.TemporaryDirectory(prefix="lease-peer-") as directory:
        agent = Agent(os.path.realpath(sys.argv[1]), directory)
        try:
            agent.fleet = eventually(agent.where, "the agent listens")
            asker, hears = Asker(agent.fleet["listen"]), Listener(agent.fleet["publish"])
            says_who_it_is(asker)
            says_who_it_is(Asker("ipc://%s/agent.ipc" % directory))
            first = goes_once(asker, agent)
            second = is_refused(asker, first)
            stands_in_the_queue(asker, agent.fleet["listen"], second)
            fetches(asker, hears)
            renews_and_releases(asker, hears, first["lease"])
            knows_no_other(asker)
            joins(asker, agent)
        finally:
            agent.end()
    print("a peer in python: as it must be")


if __name__ == "__main__":
    main()
