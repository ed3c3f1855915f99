// Package sqlite is the embedded authority: leases, operations, holds and messages in one SQLite file that several processes of one machine
// share, durable before they are told, next to the tables that they protect.
//
// All writes of a process go through one writer that commits whatever is waiting in one transaction (group
// commit), and the processes take turns through a two-lock turnstile in a side file, FILE-tenure: whoever has
// just written queues behind the one that waits. SQLite's own busy timeout starves renewals and is not used.
//
// [Store.Fenced] runs a function in a transaction in which the claim holds (strict). [Verify], [Enter] and
// [Admit] do the same checks in a transaction of the caller's own.
//
// [Protect] makes a table that no program writes without the claim to the row's lease, also code that has never heard of leases: triggers in
// the file refuse it. Whoever holds the lease hands its claim to them by [Present].
//
// [Store.Operations] records what is known to have happened to work that has an effect elsewhere. An operation is submitted, and a worker's
// attempt completed, beside what they change in the application's own tables, in one transaction: [Operations.SubmitTx], [Operations.CompleteTx].
//
// [Store.Holds] reserves items for an actor until a deadline, and sells them once: a sale and the confirmation of its hold share one transaction by [Holds.ConfirmTx].
//
// [Store.Outbox] keeps messages that leave if and only if the transaction that wrote them has committed, by [Outbox.AppendTx], and [Store.Inbox] makes one that is delivered twice have its effect once, by
// [Inbox.Once].
//
// Authority time is the kernel's boot clock plus an anchor in the file: steps of the wall clock change nothing
// while one boot lasts. Only os.Stat ever touches the database and its -wal and -shm files: opening and
// closing them by other means in a process drops SQLite's locks. For the same reason no second SQLite library
// may open the file in the same process. A backup is made by VACUUM INTO.
//
// A process that is stopped inside a write stops every grant, renewal and release on that file until it is
// continued or killed. Contexts end at their safe deadline, nobody is granted, nothing is lost.
package sqlite
