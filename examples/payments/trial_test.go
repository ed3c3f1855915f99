package payments_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// trial is one run of one arm: a shop, its provider, and whoever works for it.
type trial struct {
	t        *testing.T
	arm      arm
	n        int // charges
	pace     pace
	ops      operation.Backend // the shop's own
	provider *flakypay.Provider
	served   chan error
	job      job
	folder   string
	books    map[string]bool // by name of the file: whoever wrote it said in the end that all was recorded

	mu        sync.Mutex
	withdrawn []string
	submitted chan struct{} // closed when all are
}

// begin starts the provider and the shop's webhook. The caller starts who works.
func begin(t *testing.T, a arm, n int, p pace, ops operation.Backend) *trial {
	t.Helper()
	r := &trial{t: t, arm: a, n: n, pace: p, ops: ops, folder: t.TempDir(), books: map[string]bool{}, submitted: make(chan struct{}), served: make(chan error, 1)}
	b, err := openBook(r.bookName("webhooks", false))
	if err != nil {
		t.Fatal(err)
	}
	var webhook http.Handler = &payments.Webhook{Operations: ops, Logger: slog.New(slog.DiscardHandler)}
	if a.deaf {
		webhook = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	}
	hook := httptest.NewServer(&hearing{b, webhook})
	t.Cleanup(func() {
		hook.Close()
		_ = b.file.Close() // nothing is written any more
	})
	c := a.config
	c.WebhookURL, c.Seed = hook.URL, uint64(n)
	if c.Chances == nil && c.Script == nil {
		c.Chances, c.Script = chances(c, a.terms.Timeout), spare
	}
	if r.provider, err = flakypay.New(c); err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.provider.Serve(context.Background(), listener) }()
	t.Cleanup(func() { _ = r.provider.Close() })
	r.job = job{Provider: "http://" + listener.Addr().String(), Terms: a.terms, MaxAttempts: a.attempts, Pace: p}
	return r
}

// bookName is a file of receipts.
func (r *trial) bookName(who string, complete bool) string {
	name := filepath.Join(r.folder, who)
	r.books[name] = complete
	return name
}

// submit places all orders, and withdraws some of them, until ctx ends. A store that is away is asked again.
func (r *trial) submit(ctx context.Context) {
	next := make(chan int)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range next {
				r.place(ctx, i)
			}
		})
	}
	for i := 0; i < r.n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	all.Wait()
	close(r.submitted)
}

// place submits one order, and withdraws one in forty of them: at once, so that it meets the charge in every state.
func (r *trial) place(ctx context.Context, i int) {
	id := fmt.Sprintf("order-%d", i)
	order := payments.Order{Cents: int64(100 + i%900), Card: "tok_visa"}
	until(ctx, func() error {
		_, err := payments.Charges().Submit(ctx, r.ops, id, order)
		return err
	})
	if i%40 != 7 {
		return
	}
	wait(ctx, time.Duration(i%17)*r.pace.Base)
	until(ctx, func() error {
		_, err := payments.Withdraw(ctx, r.ops, id, "the customer has changed their mind")
		return err
	})
	r.mu.Lock()
	r.withdrawn = append(r.withdrawn, id)
	r.mu.Unlock()
}

// until repeats what is safe to repeat, until it is done.
func until(ctx context.Context, do func() error) {
	for ctx.Err() == nil && do() != nil {
		wait(ctx, 50*time.Millisecond)
	}
}

// list reads every operation that matches.
func (r *trial) list(ctx context.Context, req operation.ListRequest) (map[string]operation.Record, error) {
	all := map[string]operation.Record{}
	req.Limit = operation.MaxList
	for {
		page, err := r.ops.List(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			all[rec.ID] = rec
			req.After = rec.ID
		}
		if len(page) < req.Limit {
			return all, nil
		}
	}
}

// busy says what is not at rest yet, or nothing: work, refunds that are to be made, and what an inquiry would decide.
func (r *trial) busy(ctx context.Context) string {
	select {
	case <-r.submitted:
	default:
		return "not everything is submitted"
	}
	stats, err := r.ops.Stats(ctx)
	if err != nil {
		return err.Error()
	}
	for _, s := range stats {
		if s.State == operation.Pending || s.State == operation.Attempting {
			return fmt.Sprintf("%d are %v", s.Count, s.State)
		}
	}
	wished, err := r.list(ctx, operation.ListRequest{States: []operation.State{operation.Succeeded}, Wished: true})
	if err != nil || len(wished) > 0 {
		return fmt.Sprintf("%d are to be refunded (%v)", len(wished), err)
	}
	open, err := r.list(ctx, operation.ListRequest{States: []operation.State{operation.Uncertain}})
	if err != nil {
		return err.Error()
	}
	for id := range open {
		rec := open[id]
		if rec.Step == operation.Work || !r.arm.mayStayOpen(&rec, r.provider.Ledger().Tally(flakypay.Op(rec.Kind), id)) && !r.arm.forgets {
			return fmt.Sprintf("of %d uncertain ones, %s is not settled: %s, due in %v, %d inquiries", len(open), id, attemptsOf(&rec), rec.StepIn, rec.Inquiries)
		}
	}
	return ""
}

// rest waits until nothing goes on any more, looking again after the time that a request can be on its way.
func (r *trial) rest(ctx context.Context) {
	r.t.Helper()
	for quiet := 0; quiet < 2 && ctx.Err() == nil; {
		what := r.busy(ctx)
		if what == "" {
			quiet++
			wait(ctx, 2*r.arm.terms.Timeout)
			continue
		}
		quiet = 0
		wait(ctx, max(50*time.Millisecond, min(time.Second, r.arm.terms.Timeout/2)))
		if ctx.Err() != nil {
			r.t.Errorf("no rest: %s", what)
		}
	}
}

// close ends the provider: nothing is on its way any more, and the ledger is what it will be.
func (r *trial) close() {
	r.t.Helper()
	if err := errors.Join(r.provider.Close(), <-r.served); err != nil {
		r.t.Fatal(err)
	}
}

// judge reads the store and the ledger, when everybody has ended.
func (r *trial) judge(ctx context.Context) (v *verdict, lost int) {
	r.t.Helper()
	records, err := r.list(ctx, operation.ListRequest{Bodies: true})
	if err != nil {
		r.t.Fatal(err)
	}
	for name, complete := range r.books {
		all, err := readBook(name)
		if err != nil {
			r.t.Fatal(err)
		}
		missing, err := acknowledge(r.provider.Ledger(), records, all)
		if err != nil {
			r.t.Fatal(err)
		}
		lost += len(missing)
		if complete && len(missing) > 0 {
			r.t.Errorf("%d answers were had by a process that says it has recorded everything, and are not recorded, such as %+v", len(missing), missing[0])
		}
	}
	v = judge(r.arm, r.provider.Ledger(), records, r.withdrawn)
	if charges := len(records) - v.refunds; charges != r.n {
		v.complain(&operation.Record{}, flakypay.Tally{}, "%d charges are stored, and %d were submitted", charges, r.n)
	}
	open, err := r.list(ctx, operation.ListRequest{States: []operation.State{operation.Pending, operation.Attempting, operation.Uncertain}})
	if err != nil || len(open) != len(v.open) {
		v.complain(&operation.Record{}, flakypay.Tally{}, "%d are listed as undecided, and %d are (%v)", len(open), len(v.open), err)
	}
	return v, lost
}
