// Package tenure is the map of the module: work with one recognised owner and one recorded outcome. It
// holds documentation only; import the packages below.
//
// # Four concerns, never mixed
//
//   - Waiting: how much budget is left to wait or to attempt? Its end does not mean that the remote effect
//     did not happen.
//   - Execution: which attempt is running, and what did it send? Its deadline does not mean that the attempt
//     stopped.
//   - Ownership: who is recognised, until when, under which token? Its expiry does not mean that the former
//     owner stopped, or that its writes were recalled.
//   - Durable outcome: what is known to have happened? A silent provider has not done nothing.
//
// The second half of ownership is fencing, where it meets the thing that it protects: the resource itself
// refuses what is stale. Waiting, ownership and fencing are what this version holds; execution and durable
// outcome are named here because the packages below refuse to do their work for them.
//
// # Where things are
//
//   - fence: tokens, claims, and the pure rules by which a resource admits or refuses. Standard library only.
//   - fence/fencehttp, fence/fencegrpc, fence/fenceconnect: the same in front of a service; fence/file and
//     fence/object: for files, and for objects in S3-like stores.
//   - budget: waiting: attempts that fit, repeating what may be repeated, where the time went. Adapters for
//     net/http, gRPC, Connect and SQL below it; budget/admission: a service does what it can.
//   - fresh: until when a value counts as current, and what to do while its source is away.
//   - lease: the contract of an authority (Store), the client's Session and Lease, the errors.
//   - lease/leasetest: the conformance suite of that contract, as values, for any store.
//   - store/memory: the rules in one process; the oracle of the tests.
//   - store/sqlite: the embedded authority, one file shared by the processes of one machine, with the
//     checks for a caller's own transaction. store/postgres: the same in a database; both have tables that
//     refuse whoever has no claim.
//   - drill: faults on real processes, judged by what the resource holds afterwards.
//   - cmd/tenure: the command: run a program under a lease, look, revoke, drill.
//   - spec: the rules as models for spin, each with a broken twin that must be refuted.
//
// # What is promised, and what is not
//
// Promised: at most one valid lease of a name by the authority's clock; a token that rises with every grant
// of a name and is never issued twice; an answer given only after what it says is durable; and, at a
// resource that checks claims, that no stale write is accepted (the strict check), or none after a
// successor has entered (the high-water mark).
//
// Not promised: that at most one process believes to hold. A process that is paused, suspended or cut off
// can believe so for as long as it does not look at a clock. A lease alone therefore protects nothing that
// cannot refuse. Per store, and with the assumptions behind each sentence: docs/guarantees.md.
package tenure
