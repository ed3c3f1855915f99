//go:build unix

package phases

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetsql"
	"github.com/tenure-go/tenure/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// table is a database of a real server, with a table that each call adds a row to.
type table struct {
	*proxy
	url   string // at the server itself
	count func() int
}

func newTable(t *testing.T) *table {
	t.Helper()
	server := testdb.Shared(t)
	at := server.URL(server.Database(t))
	direct, err := pgxpool.New(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	if _, err := direct.Exec(t.Context(), "CREATE TABLE work (what bytea)"); err != nil {
		t.Fatal(err)
	}
	return &table{proxy: newProxy(t, "127.0.0.1:"+strconv.Itoa(server.Port())), url: at, count: func() int {
		n := 0
		if err := direct.QueryRow(context.Background(), "SELECT count(*) FROM work").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}}
}

// config is how to connect at an address.
func (tb *table) config(t *testing.T, address string) *pgx.ConnConfig {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(tb.url)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(host, port)
	c, err := pgx.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	c.ConnectTimeout = 2 * soon // a pool goes on connecting for itself
	return c
}

// statement is what a call of a kind runs; each adds a row.
func statement(kind string) (text string, argument []byte) {
	text = "INSERT INTO work (what) VALUES ($1) RETURNING 'x'"
	switch kind {
	case "large":
		return text, make([]byte, large)
	case "long":
		return "INSERT INTO work (what) VALUES ($1) RETURNING repeat('x', 1000000)", nil
	}
	return text, nil
}

// pool makes calls on one connection at most, and can take that away.
type pool struct {
	call func(ctx context.Context, kind string) error
	take func(t *testing.T)
}

// driver is a pool at an address.
type driver func(t *testing.T, config *pgx.ConnConfig) pool

func overPgx(t *testing.T, config *pgx.ConnConfig) pool {
	t.Helper()
	c, err := pgxpool.ParseConfig("")
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig, c.MaxConns = config, 1
	p, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return pool{
		call: func(ctx context.Context, kind string) error {
			text, argument := statement(kind)
			return budgetsql.Call(ctx, p.Acquire, func(ctx context.Context, conn *pgxpool.Conn) error {
				defer conn.Release()
				var answer string
				return conn.QueryRow(ctx, text, argument).Scan(&answer)
			})
		},
		take: func(t *testing.T) {
			t.Helper()
			conn, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Release)
		},
	}
}

func overDatabaseSQL(t *testing.T, config *pgx.ConnConfig) pool {
	t.Helper()
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return pool{
		call: func(ctx context.Context, kind string) error {
			text, argument := statement(kind)
			return budgetsql.Call(ctx, db.Conn, func(ctx context.Context, conn *sql.Conn) error {
				defer conn.Close()
				var answer string
				return conn.QueryRowContext(ctx, text, argument).Scan(&answer)
			})
		},
		take: func(t *testing.T) {
			t.Helper()
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		},
	}
}

// sqlAt is a scene at an address, before any connection is there.
func sqlAt(open driver, address func(t *testing.T) string, change func(t *testing.T, c *pgx.ConnConfig)) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		tb := newTable(t)
		c := tb.config(t, address(t))
		if change != nil {
			change(t, c)
		}
		p := open(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
		defer cancel()
		return tb.count, p.call(ctx, "work")
	}
}

// sqlThrough is a scene on a connection through a proxy that does something.
func sqlThrough(open driver, kind, stream, what string) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		tb := newTable(t)
		p := open(t, tb.config(t, tb.Listen))
		t.Cleanup(tb.Stop) // before the pool is closed, which waits for answers
		ready(t, p)
		tb.does(stream, what)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(late))
		defer cancel()
		before := tb.count()
		return func() int { return tb.count() - before }, p.call(ctx, kind)
	}
}

// ready makes a pool connect and prepare what calls run.
func ready(t *testing.T, p pool) {
	t.Helper()
	for _, kind := range []string{"work", "long"} {
		if err := p.call(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
}

// noConnection is a call that waits for the only connection, which somebody has.
func noConnection(open driver) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		tb := newTable(t)
		p := open(t, tb.config(t, tb.Listen))
		p.take(t)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
		defer cancel()
		return tb.count, p.call(ctx, "work")
	}
}

// gone is a call whose context ends between getting the connection and the statement.
func gone(open driver) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		tb := newTable(t)
		p := open(t, tb.config(t, tb.Listen))
		ready(t, p)
		before := tb.count()
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(time.Nanosecond))
		defer cancel()
		<-ctx.Done()
		return func() int { return tb.count() - before }, p.call(ctx, "work")
	}
}

// pgxScenes: a pool of pgx goes on connecting when its caller's time ends, and does not say how far that came.
func pgxScenes() []scene { return sqlScenes(overPgx, budget.PhaseConnection) }

// databaseSQLScenes: database/sql waits for the driver, which says how far it came unless its context ends first.
func databaseSQLScenes() []scene {
	return sqlScenes(overDatabaseSQL, budget.PhaseDNS, budget.PhaseConnection)
}

// sqlScenes: lookup is the phases that a pool tells of a name that was not found in time.
func sqlScenes(open driver, lookup ...budget.Phase) []scene {
	dns := func(server func(t *testing.T) string) func(t *testing.T, c *pgx.ConnConfig) {
		return func(t *testing.T, c *pgx.ConnConfig) { t.Helper(); c.LookupFunc = resolver(server(t)).LookupHost }
	}
	withName := func(*testing.T) string { return "service.test:5432" }
	// Drivers do not tell whether a statement was still being sent when its time ended. PostgreSQL answers before it commits, so an answer that is cut short may end the statement or come too late for that.
	return []scene{
		{"no connection is free", budget.NotSent, in(budget.PhaseConnection), false, noConnection(open)},
		{"the name server is silent", budget.NotSent, in(lookup...), false, sqlAt(open, withName, dns(silentDNS))},
		{"there is no name server", budget.NotSent, in(budget.PhaseDNS), false, sqlAt(open, withName, dns(closedUDP))},
		{"connecting gets no answer", budget.NotSent, in(budget.PhaseConnect, budget.PhaseConnection), false, sqlAt(open, full, nil)},
		{"connecting is refused", budget.NotSent, in(budget.PhaseConnect), false, sqlAt(open, nobody, nil)},
		{"the greeting gets no answer", budget.NotSent, in(budget.PhaseConnection), false, sqlAt(open, silent, nil)},
		{"the greeting is reset", budget.NotSent, in(budget.PhaseConnection), false, sqlAt(open, resetting, nil)},
		{"time is over", budget.NotSent, in(budget.PhaseConnection), false, gone(open)},
		{"sending does not come to its end", budget.Unknown, in(budget.PhaseAnswer), false, sqlThrough(open, "large", "upstream", stall)},
		{"sending is reset", budget.Unknown, in(budget.PhaseSending), false, sqlThrough(open, "large", "upstream", reset)},
		{"the request is lost", budget.Unknown, in(budget.PhaseAnswer), false, sqlThrough(open, "work", "upstream", swallow)},
		{"the answer is lost", budget.Unknown, in(budget.PhaseAnswer), true, sqlThrough(open, "work", "downstream", swallow)},
		{"the answer is a reset", budget.Unknown, in(budget.PhaseAnswer), true, sqlThrough(open, "work", "downstream", reset)},
		{"the answer does not come to its end", budget.Unknown, in(budget.PhaseAnswer), true, sqlThrough(open, "long", "downstream", stall)},
		{"the answer is cut short", budget.Unknown, in(budget.PhaseAnswer), false, sqlThrough(open, "long", "downstream", cutShort)},
	}
}

// deafSQL is a server whose answers to statements are lost, while connections can be made.
func deafSQL(open driver) func(t *testing.T) (func(context.Context) error, func() int) {
	return func(t *testing.T) (func(context.Context) error, func() int) {
		t.Helper()
		tb := newTable(t)
		before := 0
		return func(ctx context.Context) error {
			p := newProxy(t, tb.Upstream) // a connection of its own, whose answers are lost from now on
			one := open(t, tb.config(t, p.Listen))
			t.Cleanup(p.Stop)
			ready(t, one)
			before += 2
			p.does("downstream", swallow)
			return one.call(ctx, "work")
		}, func() int { return tb.count() - before }
	}
}
