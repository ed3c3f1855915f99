// Package choosing holds seven kinds of lock side by side: a mutex, two kinds of file lock, a PostgreSQL row lock, advisory locks
// of a session and of a transaction, and a lease. It has no code of its own. Each test shows, on the real thing, what a row of
// docs/choosing.md says. TestPageOfLocks holds that page to the tests, and TestPageOfEnforcement docs/enforcement.md to the
// tests and drills that it names.
package choosing
