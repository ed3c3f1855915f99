// Package fencegrpc refuses stale owners at the door of a gRPC service: interceptors that look at the claim of each call,
// and interceptors that send it. What a door promises, with turns and without, is in package fencehttp, whose Check and
// Serializer this one takes: a service that speaks both protocols gives both the same.
//
// The claim is in the metadata tenure-claim, in its text form, exactly once. A call of a stream is let in once, when it
// begins: a stream that lives on is not asked again, and keeps its turn until it ends.
//
// Refusals are statuses with an ErrorInfo of the domain [fencehttp.ReasonDomain], whose metadata tell resource, name, seen and newer:
//
//	FAILED_PRECONDITION  CLAIM_REFUSED      the claim is stale: acquire again
//	FAILED_PRECONDITION  CLAIM_MISSING      a protected call carried none
//	FAILED_PRECONDITION  CLAIM_FOREIGN      a claim to another lease or of another authority
//	FAILED_PRECONDITION  CLAIM_AHEAD        the authority has lost grants
//	INVALID_ARGUMENT     CLAIM_INVALID      no claim in the text, or two
//	INVALID_ARGUMENT     CLAIM_RESOURCE     what the call is about is not clear
//	UNAVAILABLE          CLAIM_BUSY         the turn did not come; with a RetryInfo
//	UNAVAILABLE          CLAIM_FULL         no room for another mark; with a RetryInfo
//	UNAVAILABLE          CLAIM_UNAVAILABLE  the claim could not be checked; with a RetryInfo
//
// After each of them the call was not let in, so a client may send it again where its status says UNAVAILABLE.
package fencegrpc
