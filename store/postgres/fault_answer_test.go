package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// lossy is a harness whose store speaks through a proxy.
type lossy struct {
	*rig
	proxy *testdb.Proxy
}

func newLossy(t testing.TB, o Options) *lossy {
	t.Helper()
	server := testdb.Shared(t)
	l := &lossy{rig: &rig{t: t}, proxy: testdb.StartProxy(t, server.Addr())}
	h := &harness{t: t, server: server, opts: o}
	h.database = server.Template(t, install)
	h.storeURL = func(h *harness) string { return with(h.t, l.proxy.URL(server, h.database), "pool_max_conns", "8") }
	h.start()
	t.Cleanup(h.stop)
	l.harness = h
	return l
}

// lose swallows the answer to the next statement with this text in it, and calls do, if it is not nil, when the server has done what it
// says. The returned function fails the test if no answer was lost.
func (l *lossy) lose(match string, do func()) (lost func()) {
	happened := make(chan struct{})
	l.proxy.AfterNext([]byte(match), func() {
		close(happened)
		if do != nil {
			do()
		}
	})
	return func() {
		l.t.Helper()
		select {
		case <-happened:
		default:
			l.t.Fatalf("no answer to a statement with %q was lost", match)
		}
	}
}

// answers are the calls whose answer is lost. call is made twice, and its second answer is the truth about the first.
func answers() map[string]struct {
	match string
	opts  Options
	call  func(l *lossy, session fence.ID) func(context.Context) (string, error)
	want  string // the second answer, where it is always the same
} {
	type row = struct {
		match string
		opts  Options
		call  func(l *lossy, session fence.ID) func(context.Context) (string, error)
		want  string
	}
	return map[string]row{
		"open":              {"tenure.session_open", Options{}, callOpen, "open"},
		"renew":             {"tenure.session_renew", Options{}, callRenew, "renewed"},
		"close":             {"tenure.session_close", Options{}, callClose, "closed"},
		"acquire":           {"tenure.acquire_one", Options{}, callAcquire("n"), "1"},
		"acquire many":      {"tenure.acquire_rows", Options{}, callAcquire("n", "m"), "2 1"},
		"release":           {"tenure.release_one", Options{}, callRelease, "already true"},
		"release, durable":  {"tenure.release_one", Options{SyncRelease: true}, callRelease, "already true"},
		"release, unknown":  {"tenure.release_absent", Options{}, callReleaseUnknown, "already true"},
		"revoke":            {"tenure.lease_revoke", Options{}, callRevoke, "already true"},
		"release and renew": {"tenure.release_one", Options{}, callRenewReleasing, "renewed"},
	}
}

// TestAnswersAreLost: the commit's answer is lost; the call says that the outcome is unknown, and asking again tells what it was.
func TestAnswersAreLost(t *testing.T) {
	for name, a := range answers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			l := newLossy(t, a.opts)
			call := a.call(l, l.open(ctx, time.Minute))
			lost := l.lose(a.match, nil)
			if got, err := call(ctx); !errors.Is(err, lease.ErrUnknown) {
				t.Fatalf("the lost answer: %q, %v; want ErrUnknown", got, err)
			}
			lost()
			got, err := call(ctx)
			if err != nil || got != a.want {
				t.Fatalf("asked again: %q, %v; want %q", got, err, a.want)
			}
			if err := l.Check(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func callOpen(l *lossy, _ fence.ID) func(context.Context) (string, error) {
	req := lease.OpenRequest{ID: l.ids.New(), Owner: "o", TTL: time.Minute}
	return func(ctx context.Context) (string, error) {
		_, err := l.store.Open(ctx, req)
		return "open", err
	}
}

func callRenew(l *lossy, session fence.ID) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		_, err := l.store.Renew(ctx, lease.RenewRequest{Session: session})
		return "renewed", err
	}
}

func callClose(l *lossy, session fence.ID) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return "closed", l.store.Close(ctx, session) }
}

func callAcquire(names ...string) func(*lossy, fence.ID) func(context.Context) (string, error) {
	return func(l *lossy, session fence.ID) func(context.Context) (string, error) {
		req := lease.AcquireRequest{Session: session, ID: l.ids.New(), Names: names}
		return func(ctx context.Context) (string, error) {
			grants, err := l.store.Acquire(ctx, req)
			var tokens []fence.Token
			for _, g := range grants {
				tokens = append(tokens, g.Claim.Token)
			}
			text := fmt.Sprint(tokens)
			return text[1 : len(text)-1], err
		}
	}
}

func callRelease(l *lossy, session fence.ID) func(context.Context) (string, error) {
	return l.releasing(session, l.acquire(context.Background(), session, "n").Acquisition)
}

func callReleaseUnknown(l *lossy, session fence.ID) func(context.Context) (string, error) {
	return l.releasing(session, l.ids.New())
}

func (l *lossy) releasing(session, id fence.ID) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		released, err := l.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: id, Names: []string{"n"}})
		return fmt.Sprint("already ", released.Already), err
	}
}

func callRevoke(l *lossy, session fence.ID) func(context.Context) (string, error) {
	claim := l.acquire(context.Background(), session, "n")
	return func(ctx context.Context) (string, error) {
		revoked, err := l.store.Revoke(ctx, lease.RevokeRequest{Name: "n", Token: claim.Token, Reason: "r"})
		return fmt.Sprint("already ", revoked.Already), err
	}
}

func callRenewReleasing(l *lossy, session fence.ID) func(context.Context) (string, error) {
	claim := l.acquire(context.Background(), session, "n")
	return func(ctx context.Context) (string, error) {
		_, err := l.store.Renew(ctx, lease.RenewRequest{Session: session, Release: []lease.Abandoned{{ID: claim.Acquisition, Names: []string{"n"}}}})
		if info, infoErr := l.store.Get(ctx, "n"); err == nil && (infoErr != nil || info.Held) {
			return "still held", infoErr
		}
		return "renewed", err
	}
}

// TestAnswerOfABatchIsLost: every caller of the batch learns that its own request may have been applied, and gets its own grant by asking again.
func TestAnswerOfABatchIsLost(t *testing.T) {
	ctx := t.Context()
	l := newLossy(t, Options{})
	session := l.open(ctx, time.Minute)
	const callers = 20
	x := l.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `INSERT INTO tenure.lease (name) VALUES ('first')`) // who asks for it waits, and the others queue behind
	first := start(func() error { _, err := callAcquire("first")(l, session)(ctx); return err })
	if !l.blocked(ctx, 1, first) {
		t.Fatal(<-first)
	}
	lost := l.lose("tenure.acquire_many", nil)
	calls := make([]func(context.Context) (string, error), callers)
	results := make(chan error, callers)
	for i := range calls {
		calls[i] = callAcquire(fmt.Sprint("n", i))(l, session)
		go func() { _, err := calls[i](ctx); results <- err }()
	}
	l.queued(session, callers)
	x.rollback(ctx)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for range calls {
		if err := <-results; !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("a caller of a batch whose answer was lost was told: %v", err)
		}
	}
	lost()
	var tokens []string
	for _, call := range calls {
		token, err := call(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if slices.Sort(tokens); len(slices.Compact(tokens)) != callers {
		t.Errorf("tokens were granted twice: %q", tokens)
	}
}

// queued waits until n acquires of the session wait for the next batch.
func (r *rig) queued(session fence.ID, n int) {
	r.t.Helper()
	r.queuedIn(&r.store.session(session).acquires, n)
}

func (r *rig) queuedIn(l *lane, n int) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-tick.C {
		l.mu.Lock()
		queued := len(l.queue)
		l.mu.Unlock()
		if queued >= n {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d of %d calls are queued", queued, n)
		}
	}
}

// TestCommitOfAFencedWriteIsLost: the caller is told to look, and finds the write once.
func TestCommitOfAFencedWriteIsLost(t *testing.T) {
	ctx := t.Context()
	l := newLossy(t, Options{})
	claim := l.acquire(ctx, l.open(ctx, time.Minute), "n")
	lost := l.lose("commit\x00", nil) // the whole statement, not "read committed"
	err := (&resource{store: l.store, own: l.own}).Strict(ctx, claim, "once", nil)
	var unknown *lease.UnknownError
	if !errors.As(err, &unknown) || unknown.Settle == "" {
		t.Fatalf("want an UnknownError that says where to look, got: %v", err)
	}
	lost()
	content, err := readContent(ctx, l.own)
	if err != nil || !slices.Equal(content, []string{"once"}) {
		t.Fatalf("content %q, %v", content, err)
	}
}

// TestCancelledAfterTheCommit is L8: the context ends when the statement has committed and its answer is on the way. A later release by
// the id succeeds, and is no "already".
func TestCancelledAfterTheCommit(t *testing.T) {
	l := newLossy(t, Options{})
	ctx := t.Context()
	session := l.open(ctx, time.Minute)
	call, cancel := context.WithCancel(ctx)
	lost := l.lose("tenure.acquire_one", cancel)
	id := l.ids.New()
	_, err := l.store.Acquire(call, lease.AcquireRequest{Session: session, ID: id, Names: []string{"n"}})
	if !errors.Is(err, lease.ErrUnknown) {
		t.Fatalf("want ErrUnknown, got: %v", err)
	}
	lost()
	released, err := l.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: id, Names: []string{"n"}})
	if err != nil || released.Already {
		t.Fatalf("release: %+v, %v", released, err)
	}
	info, err := l.store.Get(ctx, "n")
	if err != nil || info.Held || info.Token == 0 {
		t.Fatalf("after the release: %+v, %v", info, err)
	}
}
