// Package worker is where the four concerns meet: it runs a handler under a claim and a budget, under a lease where one is named, and records what became of it.
//
// A [Handler] says how the effect of one kind of operation is had ([Handler.Perform]), how it is asked about ([Handler.Inquire]) and how it is undone ([Handler.Compensate]). A [Worker] claims
// operations, runs them, renews its claims and reports. A [Reconciler] ends claims that expired, asks providers what became of operations that are uncertain, and compensates what was not wanted
// any more. A [Schedule] submits one operation an occurrence, on however many hosts it runs.
//
// What is known of an attempt is what its handler could tell. An error that nobody has classified, a panic, the end of a context: none of them says that nothing happened, so that the
// operation is uncertain, and the reconciler's or another attempt's within the provider's window.
package worker
