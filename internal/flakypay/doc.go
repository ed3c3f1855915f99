// Package flakypay is a payment provider that misbehaves: an HTTP server on real sockets, for tests, drills and audits. It stands for any provider with idempotency
// keys.
//
//	POST /charges {"amount":N,...}        Idempotency-Key: K   201 and a charge id; 402 refused; 429 or 503 with Retry-After; 422 same key, other body; 409 same key, in progress
//	POST /refunds {"charge":"ch_1",...}   Idempotency-Key: K   likewise; a charge is refunded once, in whole, whatever the key
//	GET  /charges?key=K                   an inquiry: found, closed, or not observed (200, "finding")
//	POST /charges/close?key=K             an inquiry that closes the key in the same step: found, or closed (404 where [Config.Closes] is not set)
//	GET  /refunds?key=K, POST /refunds/close?key=K
//	GET  /time                            the provider's clock, in the header Now-Ms
//	POST /received?op=&key=&answer=       the client's word that it has, for good, the answer of that number (its header Flaky-Answer)
//	POST /open?gate=                      opens a gate
//
// The same key again is given the stored answer, with the header Idempotent-Replay, if the provider keeps keys ([Config.Forget]), or has a second effect. Keys of
// charges and refunds have nothing to do with each other. Two bodies are the same if they are so byte by byte.
//
// Go's own HTTP client repeats a request with an Idempotency-Key by itself, when a connection that it had kept breaks before the answer. Who counts requests sets
// [net/http.Request.GetBody] to nil.
//
// # Not-after
//
// A request may carry Not-After-Ms: an instant on the provider's own clock. A duration would not do: it could only be counted from the request's arrival, and a
// request may be in flight for as long as it likes. So the instant is the provider's from beginning to end: a client adds a duration to a reading that the provider
// gave it (Now-Ms, in every answer), compares it with nothing of its own, and learns from Now-Ms of an inquiry that it has passed: that reading is made in the same
// step as the look, and the instant is compared in the same step as the effect. Now-Ms >= Not-After-Ms is passed. After an inquiry that observed nothing and says so,
// no request that carried the instant will have its effect. Where keys are forgotten that proves nothing, because what was not observed may have been forgotten.
// [Config.IgnoresNotAfter] is the provider that does not enforce it.
//
// # What the ledger knows
//
// The [Ledger] holds every effect, request, answer and closing. Of an answer it says what became of its last byte, and that is less than it seems. [Written] means
// that this system's kernel took it: the client may have been killed before it read it, or while it did; no sender can know better. [NotWritten] is certain: the
// connection was cut or found broken first. [Unsure] is between: the client was gone right after the write. [Sending] stays where the provider died with the answer
// in its hands. Only [Acknowledged] is knowledge on the other side: a webhook was answered with 2xx, or the client said so by POST /received; whoever audits killed
// workers asks for that, and has them acknowledge after they have recorded.
//
// Effects are exact for as long as the ledger lives, and so are the figures of a [Tally]; the details of requests and answers of one key are the latest [MaxDetails].
// With [Config.File] each fact is in a file before anybody is told of it, so that it survives the provider's own end by SIGKILL; and [Config.Sync] the machine's. A
// provider started on that file goes on from it.
package flakypay
