package admission

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

func byPath(r *http.Request) Priority {
	return map[string]Priority{"/renew": Renewal, "/status": Status}[r.URL.Path] + map[string]Priority{"/work": Work, "/": Work, "/bad": Work + 9}[r.URL.Path]
}

// get is what a client makes of an answer.
func get(t *testing.T, ctx context.Context, url string) error { //nolint:revive // t comes first, as everywhere in tests
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := (&budgethttp.Transport{Base: base}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return budgethttp.ErrorOf(resp)
}

// TestShedOverHTTP: a client knows of what was shed that it was not done and when to ask again, and its retries are let in like everything else. Renewals pass.
func TestShedOverHTTP(t *testing.T) {
	l := limiter(t, Options{Least: 1, Most: 1, Wait: time.Millisecond, Kept: 1})
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	h, err := budgethttp.Middleware(budgethttp.Limits{Most: time.Minute}, Middleware(l, byPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/work" {
			entered <- struct{}{}
			<-leave
		}
		if _, ok := w.(http.Flusher); !ok {
			t.Error("no Flusher")
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
	})))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	first := make(chan error)
	go func() { first <- get(t, t.Context(), srv.URL+"/work") }()
	<-entered
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	n := 0
	err = budget.Do(b.Context(), budget.Policy{Attempts: 2, Base: 1, Most: 1}, func(ctx context.Context) error {
		n++
		err := get(t, ctx, srv.URL+"/work")
		var known *budget.Error
		if !errors.As(err, &known) || known.Class != budget.Refused || !known.Again || known.RetryAfter < time.Second || known.RetryAfter > 3*time.Second || known.NoRetry {
			t.Errorf("%#v", err)
		} else {
			known.RetryAfter = 0 // the test does not wait for it
		}
		return err
	})
	if n != 2 || !errors.Is(err, budget.ErrAttempts) {
		t.Errorf("%d attempts, %v", n, err)
	}
	for _, path := range []string{"/renew", "/status"} {
		if err := get(t, t.Context(), srv.URL+path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := get(t, t.Context(), srv.URL+"/bad"); budget.ClassOf(err) != budget.Unknown {
		t.Errorf("no priority: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := get(t, t.Context(), srv.URL+"/work"); err != nil {
		t.Error(err)
	}
	if c := l.Numbers().By; c[Work] != (Counts{Admitted: 2, Shed: 2, Repeats: 1}) || c[Renewal].Admitted != 1 || c[Status].Admitted != 1 {
		t.Errorf("%+v", c)
	}
}

// TestOutcomesOverHTTP: what an answer, the end of a request's time and a panic count as, and that each gives its place back.
func TestOutcomesOverHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		handler     http.HandlerFunc
		timeout     time.Duration
		ended, late int64
		code        int
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, time.Minute, 1, 0, 200},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusInternalServerError)
		}, time.Minute, 0, 0, 500},
		"a redirection": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, time.Minute, 1, 0, 302},
		"not found":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, time.Minute, 0, 0, 404},
		"its time ended": {func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 10 * time.Millisecond, 1, 1, 503},
		"flushed": {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, time.Minute, 1, 0, 200},
		"a panic": {func(http.ResponseWriter, *http.Request) { panic("broken") }, time.Minute, 0, 0, 0},
	} {
		l := limiter(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); (p != nil) != (c.code == 0) {
					t.Errorf("%s: panic %v", name, p)
				}
			}()
			Middleware(l, nil, c.handler).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		}()
		cancel()
		if l.ended.Load() != c.ended || l.late.Load() != c.late || l.Numbers().InFlight != 0 || c.code >= 200 && c.code != 500 && w.Code != c.code {
			t.Errorf("%s: %d ended, %d of them late, %+v, code %d", name, l.ended.Load(), l.late.Load(), l.Numbers(), w.Code)
		}
	}
}
