package operationhttp

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
)

// TestOwnTransactionWithOtherHeaders: a handler that has completed its attempt itself, and answers with a header more, has contradicted nobody.
func TestOwnTransactionWithOtherHeaders(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		job, _ := Attempt(r.Context())
		errs, err := e.store.Complete(r.Context(), []operation.Completion{{Ref: job.Ref, Answer: operation.Answer{Known: operation.Effective, Result: Stored(202, nil, []byte("mine"))}}})
		if err != nil || errs[0] != nil {
			t.Error(errs, err)
		}
		w.Header().Set("X-Request-Id", "7")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "mine")
	}
	e.want("the first", e.ask("k", "1"), 202, "", 1)
	e.want("again", e.ask("k", "1"), 202, "", 1)
	if rec, err := e.store.Get(t.Context(), "http::k"); err != nil || rec.ConflictCount != 0 {
		t.Errorf("%+v, %v", rec.Conflicts, err)
	}
}

// TestTwoAttemptsOneAnswer: where a handler may run again, and an earlier attempt answers after a later one, all callers get the answer that decided; the other one is a conflict.
func TestTwoAttemptsOneAnswer(t *testing.T) {
	e := newEndpoint(t, Options{Window: operation.Forever, Timeout: time.Minute}, nil)
	inside, release := make(chan struct{}), make(chan struct{})
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		job, _ := Attempt(r.Context())
		if job.Ordinal == 1 {
			inside <- struct{}{}
			<-release
		}
		fmt.Fprint(w, "attempt ", job.Ordinal)
	}
	first := make(chan told, 1)
	go func() {
		got, err := e.try("k", "1")
		if err != nil {
			t.Error(err)
		}
		first <- got
	}()
	<-inside
	e.store.Advance(time.Minute)
	second := e.ask("k", "1")
	e.want("the second", second, 200, "", 2)
	close(release)
	late := <-first
	if late.status != 200 || late.body != "attempt 2" || late.header.Get(ReplayedHeader) != "true" {
		t.Errorf("the first, late: %+v", late)
	}
	if rec, err := e.store.Get(t.Context(), "http::k"); err != nil || rec.ConflictCount != 1 {
		t.Errorf("%+v, %v", rec.Conflicts, err)
	}
}

// TestLargeFailure: an answer that is too large, and that does not say that the request was done, is not taken for one that does.
func TestLargeFailure(t *testing.T) {
	for status, again := range map[int]string{500: "unknown", 429: ""} {
		e := newEndpoint(t, Options{}, nil)
		e.handle = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write(bytes.Repeat([]byte("x"), MaxAnswer+1))
		}
		got := e.ask("k", "1")
		if got.status != status || got.code == "dropped" || strings.Contains(got.body, "was done") {
			t.Errorf("%d: %d %q %.200s", status, got.status, got.code, got.body)
		}
		e.handle = nil
		if next := e.ask("k", "1"); next.code != again {
			t.Errorf("after %d: %+v", status, next)
		}
	}
}

// TestTimeoutHandler: 503 from [http.TimeoutHandler] says nothing of the handler behind it, which is still at work.
func TestTimeoutHandler(t *testing.T) {
	release := make(chan struct{})
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
	guard, err := New(memory.NewOperations(memory.Options{}), Options{Scope: Everybody})
	if err != nil {
		t.Fatal(err)
	}
	service := guard(http.TimeoutHandler(slow, time.Millisecond, "too slow"))
	for _, want := range []int{503, 409} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("1"))
		req.Header.Set(KeyHeader, "k")
		w := httptest.NewRecorder()
		service.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("%d %s; want %d", w.Code, w.Body, want)
		}
	}
	close(release)
}

// TestLargeHeader: an answer whose headers are larger than can be kept is recorded as done, without them.
func TestLargeHeader(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 { // each within what a client reads of one header
			w.Header().Set(fmt.Sprint("X-Large-", i), strings.Repeat("<", 10_000)) // six bytes each in JSON
		}
		fmt.Fprint(w, "done")
	}
	e.want("the first", e.ask("k", "1"), 200, "", 1)
	e.want("again", e.ask("k", "1"), 409, "dropped", 1)
}

// TestHeadersAfterTheAnswer are not of it, as in net/http; and what belongs to a connection is not replayed.
func TestHeadersAfterTheAnswer(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{"X-Kept": "1", "Connection": "X-Hop", "X-Hop": "1", "Proxy-Authenticate": "Basic", "Www-Authenticate": "Negotiate abc"} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Late", "1")
	}
	first, again := e.ask("k", "1"), e.ask("k", "1")
	if first.header.Get("X-Late") != "" || again.header.Get("X-Late") != "" {
		t.Errorf("a header that came after the status was sent: %v, %v", first.header, again.header)
	}
	if h := again.header; h.Get("X-Kept") != "1" || h.Get("X-Hop") != "" || h.Get("Proxy-Authenticate") != "" || h.Get("Www-Authenticate") != "" {
		t.Errorf("the replay: %v", h)
	}
}

// TestMountedTwice: two routes behind http.StripPrefix are two, although their handlers see one path.
func TestMountedTwice(t *testing.T) {
	guard, err := New(memory.NewOperations(memory.Options{}), Options{Scope: Everybody})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, route := range []string{"/charges", "/refunds"} {
		mux.Handle(route+"/", http.StripPrefix(route, guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, route) }))))
	}
	ask := func(route string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, route, strings.NewReader("1"))
		req.Header.Set(KeyHeader, "k")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		return w
	}
	if w := ask("/charges/1"); w.Code != 200 || w.Body.String() != "/charges" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask("/refunds/1"); w.Code != 422 {
		t.Errorf("the other route under the same key: %d %s", w.Code, w.Body)
	}
}

// TestDecidedByAnOperator: a caller is told that its request will not be done, and not what an operator has written for colleagues.
func TestDecidedByAnOperator(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }
	e.want("for now", e.ask("k", "1"), 429, "", 1)
	if _, err := e.store.Cancel(t.Context(), "http::k", "suspected fraud, case 4711"); err != nil {
		t.Fatal(err)
	}
	got := e.ask("k", "1")
	e.want("cancelled", got, 409, "cancelled", 1)
	if strings.Contains(got.body, "fraud") {
		t.Errorf("%s", got.body)
	}
}

// away is a store that does not answer any more.
type away struct{ Store }

func (away) Submit(context.Context, operation.SubmitRequest) (operation.Submitted, error) {
	return operation.Submitted{}, &operation.UnavailableError{Op: "submit", Err: context.DeadlineExceeded}
}

// TestStoreAwaySaysNothingOfBefore: that a repeated request cannot be looked up is not told as "nothing was done": the first one may have been.
func TestStoreAwaySaysNothingOfBefore(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.want("the first", e.ask("k", "1"), 201, "", 1)
	guard, err := New(away{e.store}, Options{Scope: Everybody})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("1"))
	req.Header.Set(KeyHeader, "k")
	w := httptest.NewRecorder()
	guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { e.effects.Add(1) })).ServeHTTP(w, req)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "Nothing was done") || e.effects.Load() != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
