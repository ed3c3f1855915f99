#!/usr/bin/env python3
"""A worker that asks a Tenure server, with Python's standard library alone.

    worker.py URL lease NAME          holds a lease until its standard input ends, and says what it holds
    worker.py URL operations KIND     does one operation of the kind, and says what became of it

URL is of `tenure serve`, such as http://127.0.0.1:7420. What matters:

  * Ids are chosen before the call, so that a call whose reply was lost can be repeated: it is done once.
  * Validity counts from just before the request was sent, on a clock that goes on while the machine sleeps, less a margin. Past that
    instant the work stops, whatever anybody has answered since.
  * An error that carries a fault is the authority's answer. Any other says nothing of the request.
"""
import json
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

TTL = 5.0  # seconds
MARGIN = max(TTL / 10, 0.5)


class Refused(Exception):
    """The authority's answer: it did not do it. fault holds the facts."""

    def __init__(self, code, message, fault):
        super().__init__(message)
        self.code, self.fault = code, fault


class Unknown(Exception):
    """The request may or may not have been applied: the same call again settles it."""


def clock():
    """Seconds on a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def new_id():
    """A UUID of version 7: those of one process rise."""
    ms = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


def seconds(duration):
    """The seconds of a duration as JSON has it, such as "4.999s"; 0 where it is absent."""
    return float(duration.rstrip("s")) if duration else 0.0


class Authority:
    def __init__(self, url):
        self.url = url.rstrip("/")

    def call(self, service, method, **fields):
        request = urllib.request.Request(
            f"{self.url}/tenure.v1.{service}Service/{method}",
            data=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json", "Connect-Timeout-Ms": "2000"},
        )
        try:
            with urllib.request.urlopen(request, timeout=2.5) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            try:
                answer = json.load(error)
                detail = next(d for d in answer["details"] if d["type"] == "tenure.v1.Fault")["debug"]
            except (ValueError, KeyError, StopIteration):
                raise Unknown(f"{method}: HTTP {error.code} without an answer of the authority") from error
            if detail["code"] == "unknown":
                raise Unknown(answer["message"]) from error
            raise Refused(detail["code"], answer["message"], detail) from error
        except (OSError, ValueError) as error:
            raise Unknown(f"{method}: {error}") from error

    def settled(self, service, method, **fields):
        """The call, repeated with its ids until its outcome is known; at most for 30 seconds."""
        until = clock() + 30
        while True:
            try:
                return self.call(service, method, **fields)
            except Unknown:
                if clock() > until:
                    raise
                time.sleep(0.2)


class Session:
    """One session, renewed by a thread. valid() is to be asked before each step of the work."""

    def __init__(self, authority, owner):
        self.authority, self.id = authority, new_id()
        self.over = threading.Event()
        sent = clock()
        reply = authority.settled("Lease", "OpenSession", id=self.id, owner=owner, ttl=f"{TTL}s")
        self.until = sent + seconds(reply["remaining"]) - MARGIN
        self.thread = threading.Thread(target=self.renew, daemon=True)
        self.thread.start()

    def renew(self):
        while not self.over.wait(TTL / 3):
            sent = clock()
            try:
                reply = self.authority.call("Lease", "RenewSession", session=self.id)
            except Unknown:
                continue  # ask again; until the safe deadline nothing is lost
            except Refused:
                self.until = 0
                return
            self.until = sent + seconds(reply["remaining"]) - MARGIN

    def valid(self):
        return clock() < self.until

    def acquire(self, *names):
        acquisition = new_id()
        reply = self.authority.settled("Lease", "Acquire", session=self.id, id=acquisition, names=list(names))
        return acquisition, [grant["claim"] for grant in reply["grants"]]

    def release(self, acquisition, *names):
        self.authority.settled("Lease", "Release", session=self.id, id=acquisition, names=list(names))

    def close(self):
        self.over.set()
        self.thread.join()
        self.authority.settled("Lease", "CloseSession", session=self.id)


def hold(authority, name):
    session = Session(authority, "worker.py")
    try:
        acquisition, claims = session.acquire(name)
    except Refused as refused:
        print(f"{refused.code}: {refused}", flush=True)
        session.close()
        return 1
    print(f"holds {name} under token {claims[0]['token']}", flush=True)
    sys.stdin.read()  # the work
    print("valid" if session.valid() else "lost", flush=True)
    session.release(acquisition, name)
    session.close()
    return 0


def operations(authority, kind):
    # A claim whose reply is lost is not repeated: what it began is uncertain when its time is over, and asked about then.
    known = {"kind": kind, "limit": 1, "timeout": "10s", "max_attempts": 3}
    jobs = authority.call("Operation", "ClaimOperations", worker="worker.py", ttl="10s", limit=1, kinds=[known]).get("jobs", [])
    if not jobs:
        print("nothing to do", flush=True)
        return 1
    job = jobs[0]
    evidence = {"known": "KNOWN_EFFECTIVE", "result": job.get("request", "")}  # the effect, here none: the request comes back
    reply = authority.settled("Operation", "CompleteAttempts", completions=[{"ref": job["ref"], "evidence": evidence}])
    fault = reply["results"][0].get("fault")
    if fault and fault["code"] == "stale":
        # Another attempt has followed; or this is the repetition of a report whose reply was lost. The record says which.
        attempts = authority.settled("Operation", "GetOperation", id=job["ref"]["id"])["operation"]["attempts"]
        if any(a["number"] == job["ref"]["number"] and a["known"] == "KNOWN_EFFECTIVE" for a in attempts):
            fault = None
    print(f"{job['ref']['id']}: " + (f"not recorded: {fault['code']}" if fault else "done"), flush=True)
    return 1 if fault else 0


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in ("lease", "operations"):
        print(__doc__, file=sys.stderr)
        return 64
    authority = Authority(sys.argv[1])
    return (hold if sys.argv[2] == "lease" else operations)(authority, sys.argv[3])


if __name__ == "__main__":
    sys.exit(main())
