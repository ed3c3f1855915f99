// Package budgetgrpc carries budgets over gRPC. The remaining duration is gRPC's own deadline (grpc-timeout); the number of an attempt travels in the metadata tenure-attempt,
// and the mark that asks for no repetition in the metadata tenure-no-retry of a call, and in the trailer of that name of its answer, beside gRPC's own grpc-retry-pushback-ms.
//
// [DialOptions] refuse a call that could not be waited for, and say of a failure whether the call was certainly not sent, was refused, or may have been done. gRPC says
// UNAVAILABLE both where there was no connection and where it broke in the middle, so the code alone decides nothing: what counts is whether the call's headers were handed to a
// connection, which gRPC tells its stats handlers, and whether the server itself has answered.
//
// [Server] gives a handler what its caller still waits for, and not more than the service allows.
//
// gRPC looks up names, connects and shakes hands for a channel, not for a call: all of it is [budget.PhaseConnection] here.
package budgetgrpc
