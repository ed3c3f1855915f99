package budgethttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// middleware is Middleware, or a twin of it.
type middleware func(Limits, http.Handler) (http.Handler, error)

// serves holds a middleware to what each header means: who has not said gets the most, nobody gets more, and who does not wait is not served.
func serves(wrap middleware) error {
	var left time.Duration // 0: not served
	var of *budget.Budget
	handler, err := wrap(Limits{Most: time.Minute, Reserve: 2 * time.Second}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		of = budget.From(r.Context())
		left = of.RemainingTotal()
	}))
	if err != nil {
		return err
	}
	var wrong []error
	for name, c := range map[string]struct {
		header []string
		code   int
		least  time.Duration // that the handler has, up to 10 s more; 0: it is not called
	}{
		"absent": {nil, 200, 50 * time.Second}, "capped": {[]string{"86400000"}, 200, 50 * time.Second}, "huge": {[]string{"99999999999999999999"}, 200, 50 * time.Second},
		"less than the most": {[]string{"30000"}, 200, 20 * time.Second}, "leading zeros": {[]string{"0030000"}, 200, 20 * time.Second},
		"zero": {[]string{"0"}, 504, 0}, "negative": {[]string{"-5"}, 504, 0}, "no more than the reserve": {[]string{"2000"}, 504, 0},
		"empty": {[]string{""}, 400, 0}, "garbage": {[]string{"soon"}, 400, 0}, "a plus": {[]string{"+30000"}, 400, 0}, "a unit": {[]string{"30s"}, 400, 0}, "twice": {[]string{"30000", "30000"}, 400, 0},
		"twice in one": {[]string{"30000,30000"}, 400, 0},
	} {
		left, of = 0, nil
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", http.NoBody)
		r.Header[budget.HeaderRemaining] = c.header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch {
		case w.Code != c.code, c.least == 0 && of != nil, left < c.least, c.least > 0 && left > c.least+10*time.Second, of != nil && of.Reserved() != 2*time.Second, w.Code == 504 && w.Header().Get(budget.HeaderNoRetry) != "1",
			w.Code == 504 && budget.ClassOf(ErrorOf(w.Result())) != budget.Refused:
			wrong = append(wrong, errors.New(name+": "+http.StatusText(w.Code)+", "+left.String()))
		case of != nil && of.Context().Err() == nil:
			wrong = append(wrong, errors.New(name+": its budget goes on"))
		}
	}
	return errors.Join(wrong...)
}

func TestMiddleware(t *testing.T) {
	if err := serves(Middleware); err != nil {
		t.Error(err)
	}
	for _, l := range []Limits{{}, {Most: -1}, {Most: maxMost + 1}, {Most: 1, Reserve: 1}, {Most: 1, Reserve: -1}} {
		if _, err := Middleware(l, http.NotFoundHandler()); !errors.Is(err, budget.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// rewritten is a middleware that is told other headers than came.
func rewritten(change func(header []string) []string) middleware {
	return func(l Limits, next http.Handler) (http.Handler, error) {
		sound, err := Middleware(l, next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header[budget.HeaderRemaining] = change(r.Header[budget.HeaderRemaining])
			sound.ServeHTTP(w, r)
		}), err
	}
}

// forgetful answers without one of the headers.
type forgetful struct {
	http.ResponseWriter
	name string
}

func (f *forgetful) WriteHeader(code int) {
	f.Header().Del(f.name)
	f.ResponseWriter.WriteHeader(code)
}

// TestCarelessMiddlewareIsCaught: none of these passes [TestMiddleware].
func TestCarelessMiddlewareIsCaught(t *testing.T) {
	for name, twin := range map[string]middleware{
		"no cap": func(_ Limits, next http.Handler) (http.Handler, error) {
			return Middleware(Limits{Most: 24 * time.Hour, Reserve: 2 * time.Second}, next)
		},
		"no reserve": func(l Limits, next http.Handler) (http.Handler, error) { return Middleware(Limits{Most: l.Most}, next) },
		"an expired caller has not said": rewritten(func(header []string) []string {
			if len(header) == 1 && (header[0] == "0" || header[0] == "-5") {
				return nil
			}
			return header
		}),
		"empty is absent": rewritten(func(header []string) []string {
			if len(header) == 1 && header[0] == "" {
				return nil
			}
			return header
		}),
		"an expired caller may have been served": func(l Limits, next http.Handler) (http.Handler, error) {
			sound, err := Middleware(l, next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sound.ServeHTTP(&forgetful{w, budget.HeaderNotStarted}, r)
			}), err
		},
		"the last of two": rewritten(func(header []string) []string { return header[max(0, len(header)-1):] }),
	} {
		if serves(twin) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

// TestCallersAttempt: the handler knows which attempt of its caller it serves, and its own requests do not claim to be that one.
func TestCallersAttempt(t *testing.T) {
	for text, want := range map[string]int{"": 0, "1": 1, "3": 3, "-1": 0, "x": 0, "+2": 0} {
		handler, err := Middleware(Limits{Most: time.Minute}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := CallersAttempt(r.Context()); got != want || budget.AttemptNumber(r.Context()) != 0 {
				t.Errorf("%q: %d", text, got)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set(budget.HeaderAttempt, text)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// layers is a service that calls another one, which fails; each repeats what it may.
func layers(t *testing.T, http2, marked bool) (bottom, middle int32, failed error) {
	t.Helper()
	var atBottom, atMiddle, attempts atomic.Int32
	below, url := service(t, http2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		atBottom.Add(1)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	handler, err := Middleware(Limits{Most: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atMiddle.Add(1)
		if n := attempts.Add(1); int(n) != CallersAttempt(r.Context()) {
			t.Errorf("attempt %d says it is %d", n, CallersAttempt(r.Context()))
		}
		err := budget.Do(r.Context(), policy, func(ctx context.Context) error { return ask(ctx, below, url) })
		if !marked {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		Fail(w, err)
	}))
	if err != nil {
		t.Fatal(err)
	}
	top, url2 := service(t, http2, handler)
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	err = budget.Do(b.Context(), policy, func(ctx context.Context) error { return ask(ctx, top, url2) })
	return atBottom.Load(), atMiddle.Load(), err
}

// TestLayersDoNotMultiply: what a service has repeated its caller does not repeat; without the mark three attempts of three make nine.
func TestLayersDoNotMultiply(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		if bottom, middle, err := layers(t, http2, true); bottom != 3 || middle != 1 || !errors.Is(err, budget.ErrNotRepeated) {
			t.Errorf("http2 %v: %d at the bottom, %d in the middle, %v", http2, bottom, middle, err)
		}
		if bottom, middle, err := layers(t, http2, false); bottom != 9 || middle != 3 || !errors.Is(err, budget.ErrAttempts) {
			t.Errorf("unmarked, http2 %v: %d at the bottom, %d in the middle, %v", http2, bottom, middle, err)
		}
	}
}
