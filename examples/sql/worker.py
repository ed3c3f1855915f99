#!/usr/bin/env python3
"""Writes lines of a report while holding a lease of Tenure's, in plain SQL.

Opens a session, acquires the lease NAME, renews in the background, writes each line in a transaction that checks the
lease, releases, and closes. Needs psycopg2, tenure's schema, the table of setup.sql, and a role with tenure_user.

exit codes: 0 all lines written; 75 somebody else held the lease until --wait ended; 76 the lease was lost, or a write
was refused: nothing was written then; 1 anything else; 2 the command line.
"""

import argparse
import random
import sys
import threading
import time

import psycopg2

ANSWER = 5.0  # seconds for which an answer is asked for again, with the same ids


def clock():
    """Seconds that go on while the machine sleeps, where the system counts those."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lost(Exception):
    """The lease may be somebody else's by now."""


class Held(Exception):
    """Somebody else has the lease."""


class Caller:
    """Calls tenure's functions on a connection of its own, each in a transaction of its own: autocommit."""

    def __init__(self, url):
        self.url, self.conn = url, None

    def call(self, sql, args, until):
        """The row, and when the request that it answers was sent. An answer that does not come says nothing about what
        became of the request: the same call with the same ids settles it, until the deadline."""
        while True:
            try:
                if self.conn is None:
                    self.conn = psycopg2.connect(self.url, connect_timeout=2, tcp_user_timeout=2000)
                    self.conn.autocommit = True
                sent = clock()
                with self.conn.cursor() as cursor:
                    cursor.execute(sql, args)
                    return sent, cursor.fetchone()
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self.close()
                if clock() >= until:
                    raise
                time.sleep(random.uniform(0.05, 0.25))

    def close(self):
        if self.conn is not None:
            self.conn.close()
        self.conn = None


class Session:
    """A session with one lease at a time, and until when this process may believe that it holds."""

    def __init__(self, url, owner, ttl):
        self.ttl = ttl
        self.margin = max(ttl / 10, 0.5)  # for clocks of different rates, and for what runs between check and use
        self.lock = threading.Lock()
        self.why = None  # why the belief is over, once it is
        self.acquisition = None
        self.caller = Caller(url)
        _, (self.id,) = self.caller.call("SELECT tenure.new_id()", (), clock() + ANSWER)
        sent, (outcome, left) = self.caller.call(
            "SELECT outcome, extract(epoch FROM remaining)::float8 FROM tenure.open_session(%s, %s, make_interval(secs => %s))",
            (self.id, owner, ttl), clock() + ANSWER)
        if outcome != "open":
            raise Lost(f"the session is over before it began: {outcome}")
        self.until = sent + left - self.margin
        self.closing = threading.Event()
        self.renewals = Caller(url)  # a renewal must not queue behind work
        self.renewer = threading.Thread(target=self.renew, daemon=True)
        self.renewer.start()

    def check(self):
        """Fails early. What keeps a late write out is not this look at a clock but the check in the write's transaction."""
        with self.lock:
            if self.why is None and clock() >= self.until:
                self.why = "no renewal was answered in time"
            if self.why is not None:
                raise Lost(self.why)

    def end(self, why):
        with self.lock:
            self.why = self.why or why

    def renew(self):
        while not self.closing.wait(self.ttl / 3):
            try:
                # Nothing below the acquisition will be asked for again, so the database need not remember it.
                sent, (outcome, left, revoked) = self.renewals.call(
                    "SELECT outcome, extract(epoch FROM remaining)::float8, revoked::text[] FROM tenure.renew(%s, %s)",
                    (self.id, self.acquisition), self.until)
            except psycopg2.Error as error:
                return self.end(f"renewals fail: {error}")
            if outcome != "renewed":
                return self.end(f"the session is over: {outcome}")
            if self.acquisition in revoked:
                return self.end("an operator revoked the lease")
            try:
                self.check()  # what is over does not come back, even if the answer says that all is well
            except Lost:
                return None
            with self.lock:
                self.until = sent + left - self.margin  # from before it was sent: a slow answer shortens it

    def acquire(self, name, wait):
        """The claim and its token. While the lease is held this polls; being refused costs the database no write."""
        _, (self.acquisition,) = self.caller.call("SELECT tenure.new_id()", (), clock() + ANSWER)
        give_up = clock() + wait
        while True:
            self.check()
            _, (outcome, claim, token, holder, left) = self.caller.call(
                "SELECT outcome, claim, token, holder, remaining FROM tenure.acquire(%s, %s, ARRAY[%s], p_closed_below => %s)",
                (self.id, self.acquisition, name, self.acquisition), clock() + ANSWER)
            if outcome == "granted":
                return claim, token
            if outcome not in ("held", "busy"):
                raise Lost(f"the lease was not granted: {outcome}")
            if clock() >= give_up:
                raise Held(f"{name} is held by {holder or 'somebody'} for {left} at most, unless renewed")
            time.sleep(random.uniform(0.1, 0.3))

    def close(self, name):
        """Lets go. If it cannot be said, the lease expires by itself, as nobody renews any more."""
        self.closing.set()
        self.renewer.join()
        try:
            if self.acquisition is not None:
                self.caller.call("SELECT tenure.release(%s, %s, ARRAY[%s])", (self.id, self.acquisition, name), clock() + ANSWER)
            self.caller.call("SELECT tenure.close_session(%s)", (self.id,), clock() + ANSWER)
        except psycopg2.Error as error:
            print(f"could not let go, the lease expires by itself: {error}", file=sys.stderr)
        self.caller.close()
        self.renewals.close()


def write(conn, fence, name, owner, claim, token):
    """One line, in one transaction with the check that comes first."""
    with conn, conn.cursor() as cursor:  # commits, or rolls back what an exception ends
        if fence == "verify":
            # Strict: refused unless the lease is valid now, and nobody else is granted it before this transaction ends.
            cursor.execute("SELECT tenure.verify(%s)", (claim,))
        else:
            # High-water: refused once a successor has entered. It is written before anything is read.
            cursor.execute("SELECT tenure.enter(%s, %s)", (f"report/{name}", claim))
        cursor.execute("SELECT coalesce(max(line), 0) + 1 FROM report WHERE name = %s", (name,))
        (line,) = cursor.fetchone()
        cursor.execute("INSERT INTO report (name, line, made_by, token) VALUES (%s, %s, %s, %s)", (name, line, owner, token))
    return line


def work(options, session):
    claim, token = session.acquire(options.name, options.wait)
    print(f"holding {options.name} under token {token}", flush=True)
    conn = psycopg2.connect(options.database_url)
    try:
        for _ in range(options.lines):
            session.check()
            if options.ask:
                print("press Enter to write", flush=True)
                sys.stdin.readline()
            line = write(conn, options.fence, options.name, options.owner, claim, token)
            print(f"wrote line {line} under token {token}", flush=True)
    finally:
        conn.close()


def main():
    about, codes = __doc__.rsplit("\n\n", 1)
    parser = argparse.ArgumentParser(description=about, epilog=codes, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help="the lease to hold")
    parser.add_argument("--database-url", metavar="URL", default="", help="postgres://...; default: what libpq's PG* variables say")
    parser.add_argument("--owner", default="worker.py", help="label shown to others, never proof (default: %(default)s)")
    parser.add_argument("--ttl", type=float, default=15, metavar="SECONDS", help="the lease ends so long after the last renewal (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="how long to wait while it is held (default: not at all)")
    parser.add_argument("--fence", choices=["verify", "enter"], default="verify", help="how a write is checked (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=3, metavar="N", help="how many lines to write (default: %(default)s)")
    parser.add_argument("--ask", action="store_true", help="wait for Enter before each write, after the look at the clock")
    options = parser.parse_args()

    session = None
    try:
        session = Session(options.database_url, options.owner, options.ttl)
        work(options, session)
    except Held as held:
        print(f"not acquired: {held}", file=sys.stderr)
        return 75
    except Lost as lost:
        print(f"stopped: {lost}", file=sys.stderr)
        return 76
    except psycopg2.Error as error:
        if error.pgcode != "TN010":
            # After an error of the connection it is unknown whether the last line was written: look before repeating it.
            print(f"failed: {error}", file=sys.stderr)
            return 1
        print(f"TN010: {error.diag.message_primary}", file=sys.stderr)
        return 76
    finally:
        if session is not None:
            session.close(options.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
