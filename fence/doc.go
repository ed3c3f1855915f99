// Package fence is where ownership meets the thing it protects: the pure rules by which a resource
// refuses a stale owner.
//
// A lease with a timeout stops nobody. A worker that was paused past its expiry wakes up and writes; the
// only place where that write can be stopped is the resource. So the worker sends a [Claim] with its
// write, and the resource decides by one of two rules, never mixed up:
//
//   - The high-water mark ([Admit], [Enter]) is for a resource that lives apart from the authority. It
//     refuses a token lower than the highest it has accepted, and accepts an equal one. It notices no
//     expiry and knows nothing of a successor that has not yet touched the resource. A holder that reads
//     before it writes must Enter first, or its read may be older than a successor's write.
//   - The strict rule ([Verify]) is for a resource that lives with the authority: the standing of the
//     lease is read, and held, in the same transaction as the write.
//
// The package decides only; it performs no I/O. The statements that move a mark or hold a lease row in one
// atomic step with the write are in store/*. Tokens order owners as in Gray and Cheriton, "Leases" (1989),
// and Kleppmann, "How to do distributed locking" (2016).
package fence
