// Package client is an authority that is somewhere else: it implements the contracts of leases, holds and operations over the calls of api/tenure/v1, so that whatever runs on a store runs on it.
//
// What is known of a call that failed is kept apart as everywhere: a server's own answer is its answer; a request that certainly did not leave, or that a server has said it did not apply, is "unavailable"; everything else is "outcome
// unknown", and the same call again settles it, with whichever server answers. Validity counts from before a request is sent, so that a slow reply shortens it: package lease does that, on this clock.
//
// A client asks one server, and the next one of those it was given when that does not answer. All of them must serve one authority; a server of another is refused.
package client
