package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// hedged sends a request, and the same again whenever it is told that the answer is late. The first answer that is none of shedding counts, and ends the others; it is an error once all have failed.
func hedged(ctx context.Context, most int, late <-chan struct{}, send func(ctx context.Context, n int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan error, most)
	var sending sync.WaitGroup
	defer sending.Wait() // also for what was given up
	defer cancel()
	sent := 0
	next := func() {
		sent++
		n := sent
		sending.Go(func() { answers <- send(ctx, n) })
	}
	next()
	var failed error
	for over := 0; over < sent; {
		more := late
		if sent == most {
			more = nil
		}
		select {
		case <-more:
			next()
		case err := <-answers:
			if err == nil {
				return nil
			}
			over++
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// guarded is how a service lets its requests in.
type guarded func(l *Limiter, next http.Handler) http.Handler

// place is a service of two places, whose work stays until it may leave.
type place struct {
	l              *Limiter
	url            string
	entered, leave chan struct{}
	running, most  atomic.Int64
}

func placed(t *testing.T, guard guarded) *place {
	t.Helper()
	p := &place{l: limiter(t, Options{Least: 2, Most: 2, Wait: time.Millisecond}), entered: make(chan struct{}, 100), leave: make(chan struct{})}
	h, err := budgethttp.Middleware(budgethttp.Limits{Most: time.Minute}, guard(p.l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		p.most.Store(max(p.most.Load(), p.running.Add(1)))
		p.entered <- struct{}{}
		<-p.leave
		p.running.Add(-1)
	})))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// send is one attempt of a caller that is not of this repository: it says itself which one it is, and what all of its attempts are for.
func (p *place) send(ctx context.Context, what string, n int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set(budget.HeaderAttempt, strconv.Itoa(n))
	req.Header.Set("Idempotency-Key", what)
	base := &http.Transport{DisableKeepAlives: true}
	resp, err := base.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return budgethttp.ErrorOf(resp)
}

// wantShed says what is wrong with the error of an attempt that was to be shed with a hint.
func wantShed(err error) error {
	var known *budget.Error
	if !errors.As(err, &known) || known.Class != budget.Refused || !known.Again || known.RetryAfter < time.Second {
		return fmt.Errorf("not shed as it ought to be: %w", err)
	}
	return nil
}

// crowded: one caller's attempt and its hedge take both places. Then another's attempt and its two hedges are shed one by one, and so are the attempts of one that retries. All places come back.
func crowded(t *testing.T, guard guarded) (wrong error) {
	t.Helper()
	p := placed(t, guard)
	late, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- hedged(t.Context(), 2, late, func(ctx context.Context, n int) error { return p.send(ctx, "first", n) })
	}()
	<-p.entered
	late <- struct{}{}
	<-p.entered
	note := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	if n := p.l.Numbers(); n.InFlight != 2 || n.By[Work] != (Counts{Admitted: 2, Repeats: 1}) {
		note("an attempt and its hedge hold %d places: %+v", n.InFlight, n.By[Work])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // a twin lets them in, and they stay
	defer cancel()
	for n := 1; n <= 3; n++ {
		if err := wantShed(p.send(ctx, "second", n)); err != nil {
			note("attempt %d of another: %w", n, err)
		}
	}
	tries := 0
	err := retry(ctx, 3, func(ctx context.Context) error {
		tries++
		if err := wantShed(p.send(ctx, "third", tries)); err != nil {
			note("attempt %d of one that retries: %w", tries, err)
		}
		return &budget.Error{Class: budget.Refused, Again: true, Err: errors.New("shed")} // without the hint, which the test does not wait for
	})
	if !errors.Is(err, budget.ErrAttempts) || tries != 3 {
		note("%d tries: %v", tries, err)
	}
	if n := p.l.Numbers(); n.By[Work] != (Counts{Admitted: 2, Shed: 6, Repeats: 5}) {
		note("%+v", n.By[Work])
	}
	close(p.leave)
	if err := <-done; err != nil || p.most.Load() != 2 {
		note("%d at a time: %v", p.most.Load(), err)
	}
	return wrong
}

// retry is Do in a budget of its own.
func retry(ctx context.Context, attempts int, fn func(context.Context) error) error {
	b, err := budget.Start(ctx, time.Minute)
	if err != nil {
		return err
	}
	defer b.End()
	return budget.Do(b.Context(), budget.Policy{Attempts: attempts, Base: 1, Most: 1}, fn)
}

// TestRepeatsTakePlaces: on a real server every retry and every hedge is let in, or shed, like a first attempt.
func TestRepeatsTakePlaces(t *testing.T) {
	if err := crowded(t, func(l *Limiter, next http.Handler) http.Handler { return Middleware(l, nil, next) }); err != nil {
		t.Error(err)
	}
}

// TestFreeRepeatsAreCaught: none of these passes [TestRepeatsTakePlaces].
func TestFreeRepeatsAreCaught(t *testing.T) {
	for name, guard := range map[string]guarded{
		"repeats go around it": func(l *Limiter, next http.Handler) http.Handler {
			inside := Middleware(l, nil, next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if budgethttp.CallersAttempt(r.Context()) > 1 {
					next.ServeHTTP(w, r)
					return
				}
				inside.ServeHTTP(w, r)
			})
		},
		"a hedge shares the place of what it repeats": func(l *Limiter, next http.Handler) http.Handler {
			inside := Middleware(l, nil, next)
			var seen atomic.Pointer[string]
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("Idempotency-Key")
				if first := seen.Swap(&key); first != nil && *first == key {
					next.ServeHTTP(w, r)
					return
				}
				inside.ServeHTTP(w, r)
			})
		},
	} {
		err := crowded(t, guard)
		if err == nil {
			t.Errorf("%s: it passes", name)
		}
		t.Logf("%s: %v", name, err)
	}
}
