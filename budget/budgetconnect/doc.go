// Package budgetconnect carries budgets over Connect, in each of the protocols that it speaks. The remaining duration is the protocol's own (Connect-Timeout-Ms, grpc-timeout); the
// number of an attempt travels in the header Tenure-Attempt, and the mark that asks for no repetition in an error's metadata, Tenure-No-Retry.
//
// [NewClient] refuses a call that could not be waited for: with less than a millisecond left Connect's client rounds up, so that the service believes what is not so, and clients of other
// versions sent no timeout at all. A handler that sees none, or an empty one, has no limit. It says of a failure whether the call was certainly not sent, was refused, or may have been done. How far a call came is
// known to a [budgethttp.Transport] in the client's http.Client; without one, whatever the service has not answered itself is [budget.Unknown].
//
// [NewServer] gives a handler what its caller still waits for, and not more than the service allows, also where the caller has not said.
package budgetconnect
