#!/usr/bin/env python3
"""Stands between an agent and the others, and loses, delays and so reorders whole messages, each way:

    lossy_proxy.py ADDRESS AGENT LOSS DELAY_MS SEED

Listens at ports 5771 (what is asked) and 5772 (what is published) of ADDRESS, for the agent at the same ports of
AGENT. LOSS of what is published, between 0 and 1, never arrives, and a quarter of that of what is asked; the rest
arrives after up to DELAY_MS. At SIGUSR1 it
loses nothing any more. Prints what it has lost when it is ended. Exits 77 without zmq."""
import heapq
import itertools
import random
import signal
import sys
import time

try:
    import zmq
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)


class Proxy:
    def __init__(self, address, agent, loss, delay_ms, seed):
        self.context = zmq.Context()
        self.loss, self.delay_s = loss, delay_ms / 1000
        self.draw = random.Random(seed)
        self.later = []  # (when, number, socket, frames)
        self.numbers = itertools.count()
        self.passed = self.lost = 0
        asked = self.bound(zmq.ROUTER, address, 5771), self.connected(zmq.DEALER, agent, 5771)
        # subscriptions are no messages: they go through
        self.listeners, self.publisher = self.bound(zmq.XPUB, address, 5772), self.connected(zmq.XSUB, agent, 5772)
        self.ways = {asked[0]: asked[1], asked[1]: asked[0], self.publisher: self.listeners}
        self.poller = zmq.Poller()
        for socket in [*self.ways, self.listeners]:
            self.poller.register(socket, zmq.POLLIN)

    def bound(self, kind, address, port):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind("tcp://%s:%d" % (address, port))
        return socket

    def connected(self, kind, address, port):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect("tcp://%s:%d" % (address, port))
        return socket

    def take(self, socket):
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if socket is self.listeners:
                self.publisher.send_multipart(frames)
            elif self.draw.random() < (self.loss if socket is self.publisher else self.loss / 4):
                self.lost += 1
            else:
                when = time.monotonic() + self.draw.random() * self.delay_s
                heapq.heappush(self.later, (when, next(self.numbers), self.ways[socket], frames))

    def pass_on(self):
        while self.later and self.later[0][0] <= time.monotonic():
            _, _, socket, frames = heapq.heappop(self.later)
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
                self.passed += 1
            except zmq.ZMQError:
                self.lost += 1

    def run(self):
        while True:
            wait = 1000 * (self.later[0][0] - time.monotonic()) if self.later else 1000
            for socket, _ in self.poller.poll(max(0, wait)):
                self.take(socket)
            self.pass_on()

    def heal(self):
        self.loss = 0

    def end(self):
        print("passed %d, lost %d" % (self.passed, self.lost), flush=True)
        sys.exit(0)


def main():
    address, agent, loss, delay_ms, seed = sys.argv[1:]
    proxy = Proxy(address, agent, float(loss), float(delay_ms), int(seed))
    signal.signal(signal.SIGUSR1, lambda *_: proxy.heal())
    signal.signal(signal.SIGTERM, lambda *_: proxy.end())
    proxy.run()


if __name__ == "__main__":
    main()
