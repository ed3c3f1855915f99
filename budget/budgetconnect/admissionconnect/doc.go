// Package admissionconnect lets calls of Connect in as a limiter of package admission allows, in each of the protocols that Connect speaks: [New] makes the interceptor. It is a package of its own so that who only
// carries budgets does not bring the limiter along.
//
// A call is let in by its own procedure, its caller's deadline bounds how long it waits, and what is shed fails with unavailable and a RetryInfo, which clients with budgetconnect.NewClient know for a refusal that
// another attempt may find otherwise, and with Retry-After, for clients that know HTTP alone. A retry or a hedge is let in like everything else.
package admissionconnect
