package testdb

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// BouncerOptions size a PgBouncer.
type BouncerOptions = pgserver.BouncerOptions

// Bouncer is a PgBouncer in transaction mode before one server.
type Bouncer struct {
	*pgserver.Bouncer
	stopped bool
}

// StartBouncer starts a PgBouncer before s. It is stopped when the test ends.
func StartBouncer(t testing.TB, s *Server, o BouncerOptions) *Bouncer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	bouncer, err := s.server.StartBouncer(ctx, o)
	if err != nil {
		fatal(t, err)
	}
	b := &Bouncer{Bouncer: bouncer}
	t.Cleanup(func() { b.Stop(t) })
	return b
}

// Stop stops PgBouncer at once, with the connections it holds.
func (b *Bouncer) Stop(t testing.TB) {
	t.Helper()
	if b.stopped {
		return
	}
	b.stopped = true
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Mode says what a proxy does with what passes.
type Mode = pgserver.Mode

// The modes of a proxy, as package pgserver describes them.
const (
	Pass        = pgserver.Pass
	DropReplies = pgserver.DropReplies
	Blackhole   = pgserver.Blackhole
	Refuse      = pgserver.Refuse
)

// Proxy stands between clients and a server; see [pgserver.Proxy] for what it can do to them.
type Proxy struct {
	*pgserver.Proxy
}

// StartProxy starts a proxy to the server at to, a host:port. It is closed when the test ends.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	proxy, err := pgserver.StartProxy(ctx, to)
	if err != nil {
		fatal(t, err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Proxy{proxy}
}

// URL is for a superuser of the server from, which is the one behind the proxy.
func (p *Proxy) URL(_ *Server, database string) string { return p.Proxy.URL(database) }

// URLAs is for a role of the server from.
func (p *Proxy) URLAs(_ *Server, role, database string) string { return p.Proxy.URLAs(role, database) }

// Addr is the server's host:port, for [StartProxy] and [Options.Via].
func (s *Server) Addr() string { return s.server.Addr() }
