package pgserver

import "errors"

var (
	// ErrNotInstalled says that the programs of PostgreSQL or PgBouncer were not found. Nothing was started.
	ErrNotInstalled = errors.New("pgserver: not installed")

	// ErrNotRunning says that the server was not running, so what was asked of it was not done. Restart it first.
	ErrNotRunning = errors.New("pgserver: the server is not running")

	// ErrRunning says that the server was running already. Nothing was changed.
	ErrRunning = errors.New("pgserver: the server is running already")

	errPortTaken = errors.New("pgserver: another process took the port")
	errTLS       = errors.New("pgserver: the proxy reads messages, so it cannot pass TLS: connect with sslmode=disable")
	errFrame     = errors.New("pgserver: not a message of the PostgreSQL protocol, or one over 64 MiB")
)
