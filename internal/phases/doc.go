// Package phases has tests alone: each phase of a call made to fail on real sockets, for net/http, gRPC, Connect, pgx and database/sql, and what is then said of the call compared with
// what the service knows of it. It is a module of its own, because the proxy that breaks connections (toxiproxy, as a library) brings more along than anything else here.
package phases
