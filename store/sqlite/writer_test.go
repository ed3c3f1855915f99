package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// gate keeps the writer inside a batch until it is opened.
type gate struct {
	once    sync.Once
	inside  chan struct{} // closed when the writer is in it
	release chan struct{}
	ended   chan struct{}
}

func (g *gate) open() {
	g.once.Do(func() { close(g.release) })
	<-g.ended
}

// holdWriter returns when the writer is inside a transaction, where it stays.
func holdWriter(t *testing.T, s *Store) *gate {
	t.Helper()
	g := queueGate(t, s)
	<-g.inside
	return g
}

// queueGate returns when the gate waits for the writer, or holds it.
func queueGate(t *testing.T, s *Store) *gate {
	t.Helper()
	g := &gate{inside: make(chan struct{}), release: make(chan struct{}), ended: make(chan struct{})}
	r := &request{op: "gate", done: make(chan error, 1), do: func(*batch) error {
		close(g.inside)
		<-g.release
		return nil
	}}
	if err := s.writer.enqueue(r, false); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.ended)
		if err := <-r.done; err != nil {
			t.Errorf("the gate: %v", err)
		}
	}()
	t.Cleanup(g.open)
	return g
}

// waitQueued returns when n requests wait for the writer.
func waitQueued(t testing.TB, s *Store, n int) {
	t.Helper()
	wait(t, func() bool {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return len(s.writer.queue)+len(s.writer.urgent) >= n
	})
}

// wait asks again and again until it is so.
func wait(t testing.TB, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about in %v", patience)
		}
	}
}

// A call whose context ends while it waits is withdrawn: certainly not applied, then or later.
func TestWithdrawnRequestIsNotApplied(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := join(t, s, time.Minute)
	kept := p.take("kept")
	calls := map[string]func(ctx context.Context) error{
		"open": func(ctx context.Context) error {
			_, err := s.Open(ctx, lease.OpenRequest{ID: lease.NewID(), TTL: time.Minute})
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: []string{"withdrawn"}})
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := s.Release(ctx, lease.ReleaseRequest{Session: p.session, ID: kept.Acquisition, Names: []string{"kept"}})
			return err
		},
		"close": func(ctx context.Context) error { return s.Close(ctx, p.session) },
		"revoke": func(ctx context.Context) error {
			_, err := s.Revoke(ctx, lease.RevokeRequest{Name: "kept", Token: kept.Token, Reason: "test"})
			return err
		},
		"raise epoch": func(ctx context.Context) error { _, err := s.RaiseEpoch(ctx, 0); return err },
		"fenced": func(ctx context.Context) error {
			return s.Fenced(ctx, kept, func(context.Context, *Tx) error { return errors.New("it ran") })
		},
	}
	before := contentsByQuery(t, s)
	g := holdWriter(t, s)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancelCause(t.Context())
	for name, call := range calls {
		waiting.Go(func() {
			err := call(ctx)
			if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "changed my mind") {
				t.Errorf("%s: %v", name, err)
			}
			if err := call(ctx); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("%s, with a context that had ended: %v", name, err)
			}
		})
	}
	waitQueued(t, s, len(calls))
	cancel(errors.New("changed my mind"))
	waiting.Wait() // while the writer is still held
	g.open()
	if after := contentsByQuery(t, s); after != before {
		t.Errorf("a withdrawn request was applied: %s, before: %s", after, before)
	}
}

// contentsByQuery is everything that the authority keeps, as text.
func contentsByQuery(t *testing.T, s *Store) string {
	t.Helper()
	text, err := dump(t.Context(), s.readDB)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// dump reads everything that an authority keeps in one snapshot.
func dump(ctx context.Context, db *sql.DB) (string, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	var all strings.Builder
	for _, table := range []string{"tenure_message", "tenure_message_body", "tenure_message_error", "tenure_outbox", "tenure_paused", "tenure_inbox", "tenure_session", "tenure_lease", "tenure_ended", "tenure_ahead", "tenure_mark", "tenure_authority",
		"tenure_operation", "tenure_attempt", "tenure_conflict", "tenure_body", "tenure_item", "tenure_hold", "tenure_line"} {
		if err := dumpTable(ctx, tx, table, &all); err != nil {
			return "", err
		}
	}
	return all.String(), nil
}

func dumpTable(ctx context.Context, tx *sql.Tx, table string, to *strings.Builder) error {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM `+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, row := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		row[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return err
		}
		fmt.Fprintln(to, table, values)
	}
	return rows.Err()
}

// A call whose context ends when the writer has taken it may be applied: the caller is told so, and repeating
// it under the same id settles it. The race detector sees whether the two still share anything.
func TestTakenRequestIsUnknownAndSettles(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := join(t, s, time.Minute)
	kept := p.take("kept")
	acquire := lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: []string{"taken"}}
	open := lease.OpenRequest{ID: lease.NewID(), Owner: "late", TTL: time.Minute}
	release := lease.ReleaseRequest{Session: p.session, ID: kept.Acquisition, Names: []string{"kept"}}
	calls := []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := s.Acquire(ctx, acquire); return err },
		func(ctx context.Context) error { _, err := s.Open(ctx, open); return err },
		func(ctx context.Context) error { _, err := s.Release(ctx, release); return err },
		func(ctx context.Context) error {
			_, err := s.Renew(ctx, lease.RenewRequest{Session: p.session})
			return err
		},
		func(ctx context.Context) error { _, err := s.Prune(ctx, lease.MinPruneAge, 10); return err },
		func(ctx context.Context) error { _, err := s.RaiseEpoch(ctx, 0); return err },
		func(ctx context.Context) error {
			_, err := s.Revoke(ctx, lease.RevokeRequest{Name: "none", Token: 1, Reason: "test"})
			return err
		},
	}
	first := holdWriter(t, s)
	second := queueGate(t, s)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i, call := range calls {
		waiting.Go(func() {
			err := call(ctx)
			if !errors.Is(err, lease.ErrUnknown) || errors.Is(err, context.Canceled) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	waitQueued(t, s, len(calls)+1)
	first.open()
	<-second.inside // the writer has taken all of them
	cancel()
	waiting.Wait()
	second.open()

	if _, err := s.Open(t.Context(), open); err != nil {
		t.Errorf("the same open again: %v", err)
	}
	info := look(t, s, "taken")
	grants, err := s.Acquire(t.Context(), acquire)
	if err != nil || grants[0].Claim.Token != info.Token || info.Acquisition != acquire.ID {
		t.Errorf("the same acquire again: %v, %v, while the file says %+v", grants, err, info)
	}
	released, err := s.Release(t.Context(), release)
	if err != nil || !released.Already {
		t.Errorf("the same release again: %+v, %v", released, err)
	}
}

// The queues are bounded, each by itself: a full one of acquires refuses no renewal. And so is what one transaction takes.
func TestQueueAndBatchAreBounded(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	g := holdWriter(t, s)
	var mu sync.Mutex
	sizes := map[*batch]int{}
	var waiting sync.WaitGroup
	fill := func(urgent bool) {
		for range maxQueue {
			waiting.Go(func() {
				r := &request{op: "count", do: func(b *batch) error {
					mu.Lock()
					defer mu.Unlock()
					sizes[b]++
					return nil
				}}
				if err := s.writer.do(t.Context(), r, urgent); err != nil {
					t.Error(err)
				}
			})
		}
	}
	fill(false)
	waitQueued(t, s, maxQueue)
	_, err := s.Open(t.Context(), lease.OpenRequest{ID: lease.NewID(), TTL: time.Minute})
	wantKind(t, err, lease.ErrUnavailable, fmt.Sprint(maxQueue), "wait already")
	fill(true)
	waitQueued(t, s, 2*maxQueue)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Session: lease.NewID()})
	wantKind(t, err, lease.ErrUnavailable, fmt.Sprint(maxQueue), "wait already")
	g.open()
	waiting.Wait()
	total := 0
	for _, n := range sizes {
		total += n
		if n > maxBatch {
			t.Errorf("%d requests in one transaction", n)
		}
	}
	if total != 2*maxQueue || len(sizes) > 4*maxQueue/maxBatch {
		t.Errorf("%d requests ran, in %d transactions", total, len(sizes))
	}
}

// Renewals keep leases alive: one that comes last is served first.
func TestRenewalGoesFirst(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	g := holdWriter(t, s)
	served := make(chan string, 2*maxBatch+1)
	queue := func(who string, urgent bool) {
		r := &request{op: who, done: make(chan error, 1), do: func(*batch) error { served <- who; return nil }}
		if err := s.writer.enqueue(r, urgent); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * maxBatch {
		queue("other", false)
	}
	queue("renewal", true)
	g.open()
	if first := <-served; first != "renewal" {
		t.Error("others were served before the renewal")
	}
	for range 2 * maxBatch {
		<-served
	}
}

// However many renewals come, those that wait beside them are served: here each renewal that is served brings the next.
func TestRenewalsStarveNobody(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	claim := join(t, s, time.Minute).take("a")
	var mu sync.Mutex
	batches := map[*batch]bool{}
	over := false
	var renewal func() *request
	renewal = func() *request {
		return &request{op: "renewal", done: make(chan error, 1), do: func(b *batch) error {
			mu.Lock()
			batches[b] = true
			again := !over && len(batches) < 100
			mu.Unlock()
			if again {
				return s.writer.enqueue(renewal(), true)
			}
			return nil
		}}
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(batches)
	}
	g := holdWriter(t, s)
	for range 2 * maxBatch {
		if err := s.writer.enqueue(renewal(), true); err != nil {
			t.Fatal(err)
		}
	}
	var waiting sync.WaitGroup
	waitedFor := func(who string) {
		if n := count(); n > 3 {
			t.Errorf("%s waited for %d transactions full of renewals", who, n)
		}
	}
	waiting.Go(func() {
		err := s.Fenced(t.Context(), claim, func(context.Context, *Tx) error { waitedFor("a fenced write"); return nil })
		if err != nil {
			t.Error(err)
		}
	})
	waitQueued(t, s, 2*maxBatch+1)
	waiting.Go(func() {
		r := &request{op: "other", do: func(*batch) error { waitedFor("a request"); return nil }}
		if err := s.writer.do(t.Context(), r, false); err != nil {
			t.Error(err)
		}
	})
	waitQueued(t, s, 2*maxBatch+2)
	g.open()
	waiting.Wait()
	mu.Lock()
	over = true
	mu.Unlock()
}

// Shutting down answers all that wait, and all that come later, and may be repeated.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	p := join(t, s, time.Minute)
	claim := p.take("a")
	g := holdWriter(t, s)
	waiting := make(chan error, 2)
	go func() { waiting <- p.renew() }()
	go func() {
		waiting <- s.Fenced(t.Context(), claim, func(context.Context, *Tx) error { return nil })
	}()
	waitQueued(t, s, 2)
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- s.Shutdown(t.Context()) }()
	}
	wait(t, func() bool {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return s.writer.stopped != nil
	})
	wantKind(t, p.renew(), ErrShutDown, "not applied")
	g.open() // the write under way ends well, see holdWriter
	for range 2 {
		wantKind(t, <-waiting, ErrShutDown)
		if err := <-ended; err != nil {
			t.Errorf("shutting down: %v", err)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("shutting down again: %v", err)
	}
	wantKind(t, p.renew(), lease.ErrUnavailable)
	_, err := s.Get(t.Context(), "a")
	wantKind(t, err, ErrShutDown)
	_, err = s.List(t.Context(), lease.ListRequest{Limit: 1})
	wantKind(t, err, ErrShutDown)
	wantKind(t, s.Fenced(t.Context(), claim, func(context.Context, *Tx) error { return nil }), ErrShutDown)
}

// A program that does not take turns holds SQLite's writer lock for a moment: the writer tries again.
func TestForeignWriterForAMoment(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	db := plainDB(t, path, "?_txlock=immediate")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- p.renew() }()
	wait(t, func() bool { // the writer has taken it, and finds the lock taken
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return len(s.writer.urgent) == 0
	})
	select {
	case err := <-result:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("after the foreign transaction: %v", err)
	}
}

// It holds the lock for long: every call that waits is answered, at about the same time, with an error
// that says what stands in the way, and all of it certainly not applied.
func TestForeignWriterForLong(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	claim := p.take("a")
	before := contentsByQuery(t, s)
	db := plainDB(t, path, "?_txlock=immediate")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	const callers = 20
	results := make(chan error, callers+2)
	began := time.Now()
	for i := range callers {
		go func() { _, err := p.ask(fmt.Sprint("b/", i)); results <- err }()
	}
	go func() { results <- p.renew() }()
	go func() {
		_, err := Open(t.Context(), Config{Path: path})
		results <- err
	}()
	for range callers + 2 {
		err := <-results
		if err == nil {
			t.Error("a call succeeded")
			continue
		}
		if text := err.Error(); strings.Contains(text, "database is locked") || strings.Contains(text, "SQLITE_BUSY") || !strings.Contains(text, "take Tenure's turns") {
			t.Errorf("the error should say what stands in the way, in its own words: %v", err)
		}
	}
	// The opener and the writer wait one after the other, and requests may come after a batch has begun.
	if took := time.Since(began); took > 4*retryFor {
		t.Errorf("%d callers were answered after %v: they wait one by one", callers, took)
	}
	err = s.Fenced(t.Context(), claim, func(context.Context, *Tx) error { return nil })
	wantKind(t, err, lease.ErrUnavailable, "take Tenure's turns")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if after := contentsByQuery(t, s); after != before {
		t.Error("something was written")
	}
	if err := p.renew(); err != nil {
		t.Errorf("after the foreign transaction: %v", err)
	}
}
