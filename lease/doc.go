// Package lease is ownership: who is recognised as the owner of a name, until when, and under which token.
//
// A session is the unit of liveness: it has a TTL and is renewed as a whole, one row however many leases it
// holds. A lease is ownership of names attached to a session; each name's grant carries a fencing token that
// rises with every grant of that name. A claim is what travels to a resource; see package fence.
//
// [Store] is the contract that an authority keeps; package lease/leasetest is its conformance suite.
// [Session] and [Lease] are the client's side: they renew, end contexts at the safe deadline and release.
//
// What the end of a lease does NOT mean: that the former owner stopped, or that its writes were recalled.
// Only the resource can refuse those, by the claim.
//
// The authority's clock decides; now >= expiry is expired. Durations cross the border, instants never do. A client
// counts validity from just before it sent the request, less a margin, so a slow reply only shortens it.
package lease
