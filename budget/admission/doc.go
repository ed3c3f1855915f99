// Package admission guards a service, or what a process calls, from more work than it can do: [Limiter] lets so much in as is answered in good time, and learns how much that is from how
// long work takes. What does not get in waits in a short queue or is shed at once, with a hint when to come again, while its caller still has time for something else.
//
// Every attempt is admitted, whatever number it has: a retry or a hedge takes as much of a service as a first attempt, and one that goes around admission brings the overload back. Renewals and questions
// about what became of something go before new work, because refusing them makes more work than doing them. What waits longer than its caller does is never run.
//
// How much is let in is the business of failsafe-go's adaptive limiter, which compares recent durations with usual ones. Who goes next is decided here: its own queue knows no order but that of arrival,
// and lets in what has no time left.
//
// [Middleware] is for net/http; for gRPC and Connect there are packages admissiongrpc and admissionconnect, in the modules of their adapters, because clients of those do not learn from a plain 503 that nothing
// was done. In front of a call to others it is [Limiter.Acquire], whose error is what budget.Do goes by.
package admission
