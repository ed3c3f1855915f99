// Package fenceconnect refuses stale owners at the door of a Connect service: an interceptor that looks at the claim of each
// call, and one that sends it. What a door promises, with turns and without, is in package fencehttp, whose Check and Serializer
// this one takes: a service that speaks several protocols gives all of them the same. It works for each of the protocols
// that Connect speaks.
//
// The claim is in the header Tenure-Claim, in its text form, exactly once. A stream is let in once, when it begins: one that lives
// on is not asked again, and keeps its turn until it ends.
//
// Refusals are errors with an ErrorInfo of the domain [fencehttp.ReasonDomain], whose metadata tell resource, name, seen and newer:
// failed_precondition with the reason CLAIM_REFUSED, CLAIM_MISSING, CLAIM_FOREIGN or CLAIM_AHEAD; invalid_argument with CLAIM_INVALID or
// CLAIM_RESOURCE; unavailable, with a RetryInfo, with CLAIM_BUSY, CLAIM_FULL or CLAIM_UNAVAILABLE. After each of them the call was
// not let in.
package fenceconnect
