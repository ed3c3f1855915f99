// Run by client_test.go against a server on a real socket, whose address is in TENURE_URL.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { Authority, Lost, Refused, Unknown, claimText, newId } from "./index.js";

const url = process.env.TENURE_URL;
const authority = new Authority(url, { timeout: 500 });

/** Tells the server to behave in another way. */
const control = async (what) => assert.equal((await fetch(`${url}/control/${what}`)).status, 200);

// A session that a failing test leaves behind would keep the process.
const opened = [];
const open = async (...how) => {
  opened.push(await authority.open(...how));
  return opened.at(-1);
};
const now = Date.now;
afterEach(async () => {
  Date.now = now;
  for (const what of ["lose/0", "hang/0", "proxy/0"]) await control(what);
  for (const session of opened.splice(0)) await session.close().catch((error) => assert.equal(error.code, "ended"));
});

const ended = (signal) => new Promise((done) => (signal.aborted ? done() : signal.addEventListener("abort", done)));

test("ids rise", () => {
  const ids = Array.from({ length: 1000 }, () => newId());
  assert.deepEqual(ids, [...ids].sort());
  assert.match(ids[0], /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.ok(newId(0) > ids[999], "also when the clock is set back");
});

test("a lease is held by one", async () => {
  const [a, b] = [await open("a"), await open("b")];
  const held = await a.acquire("n1", "n2");
  assert.equal(held.claims.length, 2);
  assert.equal(typeof held.claims[0].token, "string");
  await assert.rejects(b.acquire("n2"), (error) => error instanceof Refused && error.code === "held" && error.fault.held.owner === "a");
  await a.release(held);
  await a.release(held); // twice is success
  const next = await b.acquire("n2");
  assert.ok(BigInt(next.claims[0].token) > BigInt(held.claims[1].token));
  await a.close();
  await b.close();
  await assert.rejects(a.acquire("n3"), (error) => error instanceof Refused && error.code === "ended");
});

test("replies that are lost are healed by repeating", async () => {
  await control("lose/2");
  const session = await open("c");
  const held = await session.acquire("lost");
  await session.release(held);
  await session.close();
  await control("lose/0");
});

test("what is not an authority's answer says nothing", async () => {
  await control("proxy/1");
  await assert.rejects(authority.call("Lease", "GetLease", { name: "n" }), Unknown);
  await control("proxy/0");
  await assert.rejects(new Authority("http://127.0.0.1:1").call("Lease", "GetLease", { name: "n" }), Unknown);
});

test("the signal ends at the safe deadline, whatever hangs", async () => {
  const began = performance.now();
  const session = await open("d", { ttl: 1500 });
  await control("hang/1");
  await ended(session.signal);
  const took = performance.now() - began;
  await control("hang/0");
  assert.ok(took < 1500, `it ended after ${took} ms: not before the lease could be taken by another`);
  assert.ok(session.signal.reason instanceof Lost);
  assert.equal(session.valid(), false);
  await session.close();
});

test("a session is renewed, and one that is over stays so", async () => {
  const session = await open("e", { ttl: 1200 });
  await new Promise((done) => setTimeout(done, 2500));
  assert.ok(session.valid(), "it was renewed");
  await control("expire/0");
  await ended(session.signal);
  assert.equal(session.valid(), false);
  await session.close().catch((error) => assert.equal(error.code, "ended"));
});

test("a wall clock that jumps ahead ends it, one that is set back does not prolong it", async () => {
  const session = await open("f", { ttl: 60_000 });
  Date.now = () => now() - 3_600_000;
  assert.ok(session.valid());
  Date.now = () => now() + 3_600_000; // as after a sleep that the monotonic clock has not counted
  assert.equal(session.valid(), false);
  Date.now = now;
  await session.close();
});

test("claims have their text form", async () => {
  const session = await open("g");
  const held = await session.acquire("a b/ü!'()*:%");
  assert.equal(claimText(held.claims[0]), await (await fetch(`${url}/control/claim/${encodeURIComponent(JSON.stringify(held.claims[0]))}`)).text());
  await session.close();
});
