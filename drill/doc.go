// Package drill provokes what a lease with a timeout cannot prevent, on real processes and in the user's own
// store, and looks at the resource: which late writes did it accept?
//
// [Run] conducts. It starts its own program again as workers ([Worker]), which talk in lines of JSON over stdin and
// stdout, and stops, kills or cuts them off by the scenario. The resource is a few tables of the run's own in the
// authority's file or database; each accepted write is logged in the transaction that changes the value, each answer is recorded after it in a
// transaction of its own. A further process ([Judge]) reads those tables and decides, by the rules of drill/model, whether
// the drill showed what it promised; no counter of the conductor has a say. Tokens of many servers ([Run] of failover) it is handed as a list.
//
// The drills about payments are about outcomes instead of owners: their resource is the ledger of a payment provider, which serves on a socket of the conductor's and misbehaves
// (internal/flakypay); their workers run the library's own worker and reconciler on the store's operations; and the judge reads the ledger's file.
//
// On a file a worker is never stopped inside a write: that would stop every writer of the file, see docs/guarantees.md. On
// PostgreSQL one drill does just that; another builds servers of its own, and loses one.
package drill
