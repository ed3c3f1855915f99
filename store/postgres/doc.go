// Package postgres is the authority on a PostgreSQL database: sessions, leases, tokens and marks in the schema "tenure", whose SQL
// functions any language can call. This package calls them, and coalesces what many goroutines of one session ask for.
//
// [Migrate] installs the schema. [New] makes a store on a program's own pool; [Open] makes the pool too. The strict check and
// the marks are for transactions of the caller's own ([Verify], [Enter], [Admit]) or of the store's ([Store.Fenced]). [Store.Operations] keeps operations in the same
// database, by functions of the same schema, and [Store.Holds] what is for sale and who has reserved it: [Holds.ConfirmTx] sells in the sale's own transaction.
// [Store.Outbox] keeps messages, which [Outbox.AppendTx] writes in the transaction of what they tell, and [Store.Inbox] what consumers have done: [Inbox.Once].
package postgres
