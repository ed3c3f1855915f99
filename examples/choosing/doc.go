// Package choosing holds six kinds of lock side by side: a mutex, an operating system's file lock, a PostgreSQL row lock,
// advisory locks of a session and of a transaction, and a lease. It has no code of its own. Each test shows, on the real
// thing, what a row of docs/choosing.md says; TestPage holds that page to the tests, and docs/enforcement.md to the tests and
// drills that it names.
package choosing
