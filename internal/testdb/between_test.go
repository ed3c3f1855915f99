package testdb

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestBouncerPoolsTransactions has eight connections at once on a pool of three, and finds three backends.
func TestBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	b := StartBouncer(t, s, BouncerOptions{PoolSize: 3})
	config, err := pgxpool.ParseConfig(b.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MinConns, config.MaxConns = 8, 8
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var mu sync.Mutex
	backends := map[int]bool{}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 50 {
				var pid int
				if err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				backends[pid] = true
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if len(backends) == 0 || len(backends) > 3 {
		t.Errorf("%d backends behind a pool of 3", len(backends))
	}
	exec1(t, connect(t, s.URL("postgres")), "CREATE ROLE somebody LOGIN")
	other, err := pgx.Connect(t.Context(), b.URLAs("somebody", "postgres"))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.Log())
	}
	defer other.Close(context.Background())
	var role string
	if err := other.QueryRow(t.Context(), "SELECT current_user::text", pgx.QueryExecModeExec).Scan(&role); err != nil || role != "somebody" {
		t.Errorf("role %q, %v", role, err)
	}
	b.Stop(t)
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("a stopped PgBouncer answers")
	}
}

// behind returns a proxy to the shared server, a connection through it, and one past it.
func behind(t *testing.T) (p *Proxy, through, direct *pgx.Conn) {
	t.Helper()
	s := Shared(t)
	name := s.Database(t)
	p = StartProxy(t, s.Addr())
	direct = connect(t, s.URL(name))
	exec1(t, direct, "CREATE TABLE done (n int)")
	return p, connect(t, p.URL(s, name)), direct
}

func TestProxyLosesTheAnswerOfACommit(t *testing.T) {
	t.Parallel()
	p, through, direct := behind(t)
	called := make(chan struct{})
	exec1(t, through, "BEGIN")
	exec1(t, through, "INSERT INTO done VALUES (1)")
	p.AfterNext([]byte("COMMIT"), func() { close(called) })
	want(t, through, "SELECT count(*)::text FROM done", "1") // does not match
	if _, err := through.Exec(t.Context(), "COMMIT"); err == nil {
		t.Fatal("the answer arrived")
	}
	<-called
	want(t, direct, "SELECT count(*)::text FROM done", "1")
	again := connect(t, through.Config().ConnString())
	exec1(t, again, "BEGIN")
	exec1(t, again, "INSERT INTO done VALUES (2)")
	exec1(t, again, "COMMIT") // only one is lost
}

// TestProxyKnowsAPreparedStatement matches the text of a statement whose execution names it by its name only.
func TestProxyKnowsAPreparedStatement(t *testing.T) {
	t.Parallel()
	p, through, direct := behind(t)
	const insert = "INSERT INTO done VALUES ($1)"
	exec1(t, through, insert, 1) // prepared and kept by the driver
	p.AfterNext([]byte("INTO done"), nil)
	if _, err := through.Exec(t.Context(), insert, 2); err == nil {
		t.Fatal("the answer arrived")
	}
	want(t, direct, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM done", "1 2")

	// Preparing is not running: it is answered, and the first execution is not.
	p.AfterNext([]byte("INTO done"), nil)
	again := connect(t, through.Config().ConnString())
	if _, err := again.Prepare(t.Context(), "kept", insert); err != nil {
		t.Fatalf("a statement that was only prepared: %v", err)
	}
	if _, err := again.Exec(t.Context(), "kept", 3); err == nil {
		t.Fatal("the answer arrived")
	}
	want(t, direct, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM done", "1 2 3")
}

func TestProxyDropsReplies(t *testing.T) {
	t.Parallel()
	p, through, direct := behind(t)
	p.SetMode(DropReplies)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := through.Exec(ctx, "INSERT INTO done VALUES (1)")
		failed <- err
	}()
	eventually(t, "the request was applied", func() bool { return get(t, direct, "SELECT count(*)::text FROM done") == "1" })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a request without an answer: %v", err)
	}
}

func TestProxyBlackholeAndCut(t *testing.T) {
	t.Parallel()
	p, through, direct := behind(t)
	p.SetMode(Blackhole)
	failed := make(chan error, 1)
	go func() {
		_, err := through.Exec(context.Background(), "INSERT INTO done VALUES (1)")
		failed <- err
	}()
	select {
	case err := <-failed:
		t.Fatalf("a request into nothing ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Cut()
	if err := <-failed; err == nil {
		t.Error("a cut connection answered")
	}
	want(t, direct, "SELECT count(*)::text FROM done", "0")
	p.SetMode(Refuse)
	if conn, err := pgx.Connect(t.Context(), through.Config().ConnString()); err == nil {
		conn.Close(t.Context())
		t.Error("a refused connection was let in")
	}
	p.SetMode(Pass)
	want(t, connect(t, through.Config().ConnString()), "SELECT count(*)::text FROM done", "0")
}

func TestProxyDelaysBothWays(t *testing.T) {
	t.Parallel()
	p, through, _ := behind(t)
	const delay = 30 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	if err := through.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back took %v, less than twice %v", took, delay)
	}
	p.Delay(0)
}

// TestProxyPassesWhatIsLong sends and receives more than any buffer on the way holds.
func TestProxyPassesWhatIsLong(t *testing.T) {
	t.Parallel()
	_, through, _ := behind(t)
	long := strings.Repeat("lease ", 1<<20)
	if got := get(t, through, "SELECT $1::text", long); got != long {
		t.Errorf("%d bytes came back as %d", len(long), len(got))
	}
	from := strings.NewReader(strings.Repeat("7\n", 100_000))
	if _, err := through.PgConn().CopyFrom(t.Context(), from, "COPY done FROM STDIN"); err != nil {
		t.Fatal(err)
	}
	var to bytes.Buffer
	if _, err := through.PgConn().CopyTo(t.Context(), &to, "COPY done TO STDOUT"); err != nil || to.Len() != 200_000 {
		t.Errorf("%d bytes, %v", to.Len(), err)
	}
}

// TestProxyAnswersAWishForTLS has a client that would like TLS and goes on without, as libpq does unasked.
func TestProxyAnswersAWishForTLS(t *testing.T) {
	t.Parallel()
	_, through, _ := behind(t)
	url := strings.Replace(through.Config().ConnString(), "sslmode=disable", "sslmode=prefer", 1)
	want(t, connect(t, url), "SELECT 'here'", "here")
}
