// Package pgserver starts, harms and stops private PostgreSQL servers: a primary, its standbys, plain copies of
// it, PgBouncer before it, and a proxy that loses answers. It knows nothing of testing, so a command that needs a
// server of its own can use it too; internal/testdb is the layer for test files.
//
// A server listens on a free loopback port, trusts whoever connects, and lives in a temporary folder with a guard
// process beside it: when the process that started the server ends, however it ends, the guard stops the server and
// removes the folder. A process with root's rights starts the server as the user postgres, or nobody, because
// PostgreSQL refuses to run as root. It works on Linux and other Unix systems with PostgreSQL 15 and newer.
package pgserver
