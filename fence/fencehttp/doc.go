// Package fencehttp refuses stale owners at the door of a service: HTTP middleware that looks at the claim of each
// request, and a client transport that sends it. Packages fencegrpc and fenceconnect do the same for their protocols, with
// the [Gate] of this one.
//
// # What it promises, and what not
//
// A door is not atomic with what happens behind it. Which of these holds depends on how it is set up:
//
//   - With a [Check] alone, no request is let in under a claim that the check refuses at that moment. A request that was let
//     in may still be at work when a newer one is let in, and may finish last: the newer owner's write is then overwritten by
//     the older one's, although each was checked. A test of this package, and `tenure drill fence-http`, show it.
//   - With a [Serializer] besides, one request a resource is at work at a time, and it is checked when its turn has come. A
//     newer owner waits until the older one's request has ended; what it reads and writes then comes after. That holds for
//     requests that pass one process: two processes in front of one service do not know of each other's turns.
//   - A request ends when its handler returns. A handler that leaves work behind, say a call to another server that it
//     stopped waiting for, says so with [Hold].
//   - A [Check] that asks the authority ([Strict]) notices an expiry; one that keeps a mark ([Marks]) notices only that
//     a newer owner has been here. See package fence for the two rules.
//
// Where the resource is a database, let the database check in the transaction of the write (store/postgres, store/sqlite):
// that needs no turns, and holds whoever writes.
//
// # Requests
//
// The claim is in the header Tenure-Claim, in its text form, exactly once. A request that is protected needs one. A request
// that is not, such as a GET, may carry one, and is then checked like the others and waits its turn: that is how an
// owner reads what it is about to write. Without a claim it passes.
//
// Refusals are application/problem+json, see [Problem].
package fencehttp
