// Package budgetconnect carries budgets over Connect, in each of the protocols that it speaks. The remaining duration is the protocol's own (Connect-Timeout-Ms, grpc-timeout); the
// number of an attempt travels in the header Tenure-Attempt, and the mark that asks for no repetition in the header Tenure-No-Retry of a call, and
// in the metadata of that name of an error that answers it.
//
// [NewClient] refuses a call that could not be waited for. With less than a millisecond left Connect's client (1.21) sends a whole one in its own protocol, so that the service believes what is not
// so; in those of gRPC it sends what is left. A timeout of more than ten digits it does not send. A handler that sees none, or an empty one, has no limit; behind [NewServer] it has. [NewClient] says
// of a failure whether the call was certainly not sent, was refused, or may have been done. How far a call came is known to a [budgethttp.Transport] in the
// client's http.Client; without one, whatever the service has not answered itself is [budget.Unknown].
//
// [NewServer] gives a handler what its caller still waits for, and not more than the service allows, also where the caller has not said.
package budgetconnect
