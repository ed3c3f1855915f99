// Leases of a Tenure server, with fetch alone: for Node, Deno, Bun and browsers.
//
// Validity counts from just before the request was sent, less a margin. Two clocks are read, and the one by which more time has passed
// counts: the monotonic one stops while a machine sleeps, and the wall clock can be set back. Either can only shorten what is believed.

const margin = (ttl) => Math.max(ttl / 10, 500);

/** The authority's answer: it did not do it. `code` is held, ended, mismatch, invalid, ...; `fault` has the facts. */
export class Refused extends Error {
  constructor(code, message, fault) {
    super(message);
    this.name = "Refused";
    this.code = code;
    this.fault = fault;
  }
}

/** The request may or may not have been applied. The same call again, with the same ids, settles it. */
export class Unknown extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "Unknown";
  }
}

/** Ownership is over, or could not be established past the safe deadline: the reason of an aborted signal. */
export class Lost extends Error {
  constructor(message) {
    super(message);
    this.name = "Lost";
  }
}

/** A UUID of version 7: those of one process rise. */
export function newId(now = Date.now()) {
  newId.last = Math.max(now, (newId.last ?? 0) + 1);
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  for (let i = 0, ms = newId.last; i < 6; i++, ms = Math.floor(ms / 256)) bytes[5 - i] = ms % 256;
  bytes[6] = 0x70 | (bytes[6] & 0x0f);
  bytes[8] = 0x80 | (bytes[8] & 0x3f);
  const hex = [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Milliseconds of a duration as JSON has it, such as "4.999s"; 0 where it is absent. */
function milliseconds(duration) {
  return duration ? Number.parseFloat(duration) * 1000 : 0;
}

/** The time that has passed since it was made, by whichever clock says more. */
class Watch {
  constructor() {
    this.monotonic = performance.now();
    this.wall = Date.now();
  }
  passed() {
    return Math.max(performance.now() - this.monotonic, Date.now() - this.wall);
  }
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** A server. It keeps no connection and no state. */
export class Authority {
  constructor(url, { fetch = globalThis.fetch, timeout = 2000 } = {}) {
    this.url = String(url).replace(/\/+$/, "");
    this.fetch = fetch;
    this.timeout = timeout;
  }

  /** Calls service.method once. Rejects with Refused, or with Unknown for whatever is not an answer of the authority. */
  async call(service, method, request = {}) {
    let status, text;
    try {
      const reply = await this.fetch(`${this.url}/tenure.v1.${service}Service/${method}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Connect-Timeout-Ms": String(this.timeout) },
        body: JSON.stringify(request),
        redirect: "manual",
        signal: AbortSignal.timeout(this.timeout + 500),
      });
      status = reply.status;
      text = await reply.text();
    } catch (cause) {
      throw new Unknown(`${method}: ${cause}`, { cause });
    }
    let answer;
    try {
      answer = JSON.parse(text);
    } catch (cause) {
      throw new Unknown(`${method}: HTTP ${status} without an answer of the authority`, { cause });
    }
    if (status === 200) return answer;
    const fault = answer.details?.find((detail) => detail.type === "tenure.v1.Fault")?.debug;
    if (!fault || fault.code === "unknown") throw new Unknown(answer.message ?? `${method}: HTTP ${status}`);
    throw new Refused(fault.code, answer.message, fault);
  }

  /** The call, repeated with its ids until its outcome is known; for at most `within` milliseconds. */
  async settled(service, method, request, within = 30_000) {
    const watch = new Watch();
    for (;;) {
      try {
        return await this.call(service, method, request);
      } catch (error) {
        if (!(error instanceof Unknown) || watch.passed() > within) throw error;
        await sleep(100 + Math.random() * 200);
      }
    }
  }

  /** Opens a session: the unit of renewal. `ttl` is in milliseconds. */
  async open(owner, { ttl = 15_000 } = {}) {
    const id = newId();
    const watch = new Watch();
    const reply = await this.settled("Lease", "OpenSession", { id, owner, ttl: `${ttl / 1000}s` });
    return new Session(this, id, ttl, watch, milliseconds(reply.remaining));
  }
}

/**
 * A session, renewed every third of its TTL. `signal` is aborted when it is over for this client: at the latest at the safe deadline,
 * whatever hangs. A session whose signal was aborted never comes back.
 */
export class Session {
  #authority;
  #watch;
  #left;
  #timer;
  #deadline;
  #ended = new AbortController();

  constructor(authority, id, ttl, watch, remaining) {
    this.#authority = authority;
    this.id = id;
    this.ttl = ttl;
    this.#believe(watch, remaining);
    this.#next(ttl / 3);
  }

  get signal() {
    return this.#ended.signal;
  }

  /** Whether the session may be relied on now. Ask before each step: a timer can come late. */
  valid() {
    if (!this.signal.aborted && this.#watch.passed() >= this.#left) this.#end("the safe deadline passed without a renewal");
    return !this.signal.aborted;
  }

  #believe(watch, remaining) {
    this.#watch = watch;
    this.#left = remaining - margin(this.ttl);
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.valid(), Math.max(0, this.#left - watch.passed()) + 1);
  }

  #end(why) {
    clearTimeout(this.#timer);
    clearTimeout(this.#deadline);
    if (!this.signal.aborted) this.#ended.abort(new Lost(why));
  }

  #next(after) {
    this.#timer = setTimeout(() => this.#renew(), after);
  }

  async #renew() {
    if (!this.valid()) return;
    const watch = new Watch();
    try {
      const reply = await this.#authority.call("Lease", "RenewSession", { session: this.id });
      if (!this.valid()) return; // it comes too late: what has ended stays ended
      this.#believe(watch, milliseconds(reply.remaining));
      this.#next(this.ttl / 3);
    } catch (error) {
      if (error instanceof Refused && error.code !== "unavailable") this.#end(error.message);
      else if (this.valid()) this.#next(Math.min(500, this.ttl / 10)); // unknown, not failed: ask again until the safe deadline
    }
  }

  /** Acquires all of `names`, or rejects with Refused (code "held") having changed nothing. The claims are for the resource to check. */
  async acquire(...names) {
    const id = newId();
    const reply = await this.#authority.settled("Lease", "Acquire", { session: this.id, id, names });
    return { id, names, claims: reply.grants.map((grant) => grant.claim) };
  }

  /** Releases what acquire returned. Releasing twice is success. */
  async release({ id, names }) {
    await this.#authority.settled("Lease", "Release", { session: this.id, id, names });
  }

  /** Ends the session and with it every lease. */
  async close() {
    this.#end("closed");
    await this.#authority.settled("Lease", "CloseSession", { session: this.id });
  }
}

/** The text form of a claim, as headers and environment variables carry it. */
export function claimText(claim) {
  const name = encodeURIComponent(claim.name)
    .replace(/%2F/g, "/")
    .replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `tenure1:${claim.authority}:${claim.acquisition}:${claim.token}:${name}`;
}
