package payments_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// serve starts a provider and returns its address.
func serve(t testing.TB, c flakypay.Config) (*flakypay.Provider, string) {
	t.Helper()
	p, err := flakypay.New(c)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(context.Background(), listener) }()
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return p, "http://" + listener.Addr().String()
}

// run works on a store in memory until the test ends.
func run(t *testing.T, ops operation.Backend, base string, terms payments.Terms) {
	t.Helper()
	transport := &http.Transport{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- payments.Run(ctx, ops, nil, payments.NewClient(base, transport), terms, worker.Options{Poll: 20 * time.Millisecond})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
}

// becomes waits until an operation is as wanted.
func becomes(t *testing.T, ops operation.Store, id string, want func(operation.Record) bool) operation.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		rec, err := ops.Get(ctx, id)
		if err == nil && want(rec) {
			return rec
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is %v: %s (%v)", id, rec.State, attemptsOf(&rec), err)
		}
		wait(ctx, 5*time.Millisecond)
	}
}

func is(s operation.State) func(operation.Record) bool {
	return func(rec operation.Record) bool { return rec.State == s }
}

func pay(t *testing.T, ops operation.Store, id string) {
	t.Helper()
	if _, err := payments.Charges().Submit(t.Context(), ops, id, payments.Order{Cents: 4200, Card: "tok_visa"}); err != nil {
		t.Fatal(err)
	}
}

// breaking is a server that answers its first request, and breaks the kept connection at the second one, having read it.
func breaking(t *testing.T) (base string, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost && requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"ch_1","amount":4200}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// An attempt sends one request. Go's net/http would send a second copy by itself, because the request has an Idempotency-Key: the twin below, which leaves GetBody as it was made, sends two.
func TestAttemptSendsOneCopy(t *testing.T) {
	t.Parallel()
	base, requests := breaking(t)
	ops := memory.NewOperations(memory.Options{})
	run(t, ops, base, payments.Terms{})
	pay(t, ops, "first")
	becomes(t, ops, "first", is(operation.Succeeded))
	pay(t, ops, "second")
	becomes(t, ops, "second", is(operation.Uncertain))
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests of two attempts", n)
	}

	base, requests = breaking(t)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/charges", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is kept
		_ = resp.Body.Close()
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("the twin's two requests are %d: net/http repeats them no more, and GetBody may be left alone", n)
	}
}

// While nobody knows whether a charge has happened, its refund is refused; the wish to withdraw it is kept, and honoured once a late answer says that it did. However many ask, it is one refund.
func TestRefundOfUncertainWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	provider, base := serve(t, flakypay.Config{Forget: flakypay.Forget{AtOnce: true}, Script: func(c flakypay.Call) flakypay.Fault {
		f, _ := flakypay.Named("lost")
		if c.Op == flakypay.Charge && c.Verb == flakypay.Make {
			return f
		}
		return flakypay.Fault{}
	}})
	ops := memory.NewOperations(memory.Options{})
	run(t, ops, base, payments.Terms{})
	pay(t, ops, "order-1")
	rec := becomes(t, ops, "order-1", is(operation.Uncertain))
	if _, err := payments.RefundOf(t.Context(), ops, "order-1"); !errors.Is(err, operation.ErrUndecided) {
		t.Errorf("a refund of what nobody knows: %v", err)
	}
	rec, err := payments.Withdraw(t.Context(), ops, "order-1", "changed their mind")
	if err != nil || rec.State != operation.Uncertain || !rec.CancelWished || payments.Tell(&rec).Again {
		t.Errorf("withdrawn: %+v, %v", rec, err)
	}
	said := deliver(t, ops, fmt.Sprintf(`{"op":"charge","key":"order-1","attempt":"%d","answer":1,"status":201,"reply":{"id":"ch_1","amount":4200}}`, rec.Attempts[0].Number))
	if said != http.StatusNoContent {
		t.Errorf("the webhook was answered %d", said)
	}
	becomes(t, ops, "order-1", func(rec operation.Record) bool { return rec.UndoneBy != "" })
	becomes(t, ops, payments.RefundID("order-1"), is(operation.Succeeded))
	again, err := payments.RefundOf(t.Context(), ops, "order-1")
	if err != nil || again.Value.Cents != 4200 || provider.Ledger().Tally(flakypay.Refund, payments.RefundID("order-1")).Effects != 1 {
		t.Errorf("asked for again: %+v, %v", again, err)
	}
	if rec, err := payments.Withdraw(t.Context(), ops, "order-1", "again"); err != nil || rec.State != operation.Succeeded {
		t.Errorf("withdrawn again: %v, %v", rec.State, err)
	}
}

// deliver posts a webhook, and returns how it was answered.
func deliver(t *testing.T, ops operation.Store, body string) int {
	t.Helper()
	w := httptest.NewRecorder()
	hook := &payments.Webhook{Operations: ops, Logger: slog.New(slog.DiscardHandler)}
	hook.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhook", strings.NewReader(body)))
	return w.Code
}

// away is a store that cannot be asked.
type away struct{ operation.Store }

func (away) Respond(context.Context, operation.Response) (operation.Record, error) {
	return operation.Record{}, &operation.UnknownError{Op: "respond", Err: errors.New("connection reset")}
}

// A webhook says the same as the worker's own answer did, byte by byte, so that hearing both is no conflict. Another charge under the same key is one; it is recorded, and the decision stays.
func TestWebhookIsEvidence(t *testing.T) {
	t.Parallel()
	_, base := serve(t, flakypay.Config{})
	ops := memory.NewOperations(memory.Options{})
	run(t, ops, base, payments.Terms{Keeps: operation.Forever})
	pay(t, ops, "order-1")
	number := becomes(t, ops, "order-1", is(operation.Succeeded)).Attempts[0].Number
	for _, c := range []struct {
		body      string
		status    int
		conflicts int
	}{
		{`{"op":"charge","key":"order-1","attempt":"%d","status":201,"reply":{"amount":4200,"id":"ch_1"}}`, 204, 0},
		{`{"op":"charge","key":"order-1","status":201,"reply":{"id":"ch_1","amount":4200}}`, 204, 0},
		{`{"op":"charge","key":"order-1","attempt":"%d","status":201,"reply":{"id":"ch_2","amount":4200}}`, 204, 1},
		{`{"op":"charge","key":"order-2","status":201,"reply":{"id":"ch_3","amount":4200}}`, 422, 1},
		{`{"op":"coffee","key":"order-1","status":201,"reply":{"id":"ch_3","amount":4200}}`, 400, 1},
		{`{"op":"charge","key":"order-1","status":500}`, 400, 1},
		{`{"op":"charge","key":"order-1","attempt":"x","status":201}`, 400, 1},
		{`{`, 400, 1},
	} {
		body := strings.Replace(c.body, "%d", fmt.Sprint(number), 1)
		if got := deliver(t, ops, body); got != c.status {
			t.Errorf("%s is answered %d", body, got)
		}
		if rec := becomes(t, ops, "order-1", is(operation.Succeeded)); rec.ConflictCount != c.conflicts || string(rec.Result) != `{"charge":"ch_1","amount":4200}` {
			t.Errorf("after %s: %d conflicts, %s", body, rec.ConflictCount, rec.Result)
		}
	}
	if got := deliver(t, away{ops}, `{"op":"charge","key":"order-1","status":201,"reply":{"id":"ch_1","amount":4200}}`); got != http.StatusServiceUnavailable {
		t.Errorf("while the store is away, %d", got)
	}
}

// What a provider's terms cannot mean is refused before anything starts.
func TestContradictoryTermsAreRefused(t *testing.T) {
	t.Parallel()
	for name, terms := range map[string]payments.Terms{
		"closes and forgets":     {Closes: true, Keeps: time.Hour},
		"not-after and forgets":  {NotAfter: time.Minute, Keeps: time.Hour},
		"negative":               {Keeps: -1},
		"a margin of everything": {Keeps: time.Hour, Margin: time.Hour},
	} {
		if err := payments.Run(t.Context(), memory.NewOperations(memory.Options{}), nil, payments.NewClient("http://127.0.0.1:1", nil), terms, worker.Options{}); !errors.Is(err, payments.ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Another try is offered only where the first one cannot take money any more.
func TestTellOffersNoSecondCharge(t *testing.T) {
	t.Parallel()
	for s := operation.State(0); s <= operation.Cancelled; s++ {
		n := payments.Tell(&operation.Record{Operation: operation.Operation{State: s}})
		if safe := s == operation.Failed || s == operation.Cancelled; n.Again != safe || n.Ask == s.Decided() || n.Text == "" {
			t.Errorf("%v: %+v", s, n)
		}
	}
}
