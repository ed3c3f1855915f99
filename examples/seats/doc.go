// Package seats is a seat sale done right, on PostgreSQL: a buyer's seats are held while they pay, the charge is an operation, and the sale is one transaction that confirms the hold and writes the tickets, or records that the
// payment came late and asks for its refund. docs/holds.md quotes and explains it.
//
//   - [Shop] holds, charges and sells.
//   - [Handlers] are what a worker and a reconciler run: they charge and refund at a [Provider].
//
// Audit in its tests looks at the tables: each charge has its tickets or its refund, whatever happened in between.
package seats
