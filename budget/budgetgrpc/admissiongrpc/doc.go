// Package admissiongrpc lets calls of gRPC in as a limiter of package admission allows: [New] makes the interceptors. It is a package of its own so that who only carries budgets does not bring the limiter along.
//
// A call is let in by its own method, its caller's deadline bounds how long it waits, and what is shed fails with UNAVAILABLE and a RetryInfo, which clients with budgetgrpc.DialOptions know for a refusal that
// another attempt may find otherwise, and with the trailer grpc-retry-pushback-ms, which gRPC's own retries heed. A retry or a hedge is let in like everything else.
package admissiongrpc
