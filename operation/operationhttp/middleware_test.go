package operationhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
)

// endpoint is a service on a real socket whose handler counts its effects.
type endpoint struct {
	t       *testing.T
	url     string
	store   *memory.Operations
	effects atomic.Int64
	handle  func(w http.ResponseWriter, r *http.Request) // after the effect
	gone    func()                                       // when the server notices that a caller has gone; may be nil
}

func tenant(r *http.Request) (string, error) {
	if t := r.Header.Get("Tenant"); t != "nobody" {
		return t, nil
	}
	return "", errors.New("no credentials")
}

func newEndpoint(t *testing.T, o Options, wrap func(Store) Store) *endpoint {
	t.Helper()
	e := &endpoint{t: t, store: memory.NewOperations(memory.Options{})}
	var store Store = e.store
	if wrap != nil {
		store = wrap(store)
	}
	if o.Scope == nil {
		o.Scope = tenant
	}
	guard, err := New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	guarded := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.effects.Add(1)
		if e.handle != nil {
			e.handle(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Location", fmt.Sprint("/charges/", n))
		w.Header().Set("Set-Cookie", "secret=1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "effect %d of %s", n, body)
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.gone != nil {
			defer context.AfterFunc(r.Context(), e.gone)()
		}
		guarded.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

type told struct {
	status int
	header http.Header
	body   string
	code   string
}

func (e *endpoint) ask(key, body string, header ...string) told {
	e.t.Helper()
	answer, err := e.try(key, body, header...)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer
}

func (e *endpoint) try(key, body string, header ...string) (told, error) {
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.url+"/charges", strings.NewReader(body))
	if err != nil {
		return told{}, err
	}
	if key != "" {
		req.Header.Set(KeyHeader, key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return told{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{}, err
	}
	answer := told{status: resp.StatusCode, header: resp.Header, body: string(text)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p Problem
		if err := json.Unmarshal(text, &p); err != nil {
			return told{}, err
		}
		answer.code = p.Code
	}
	return answer, nil
}

func (e *endpoint) want(what string, got told, status int, code string, effects int64) {
	e.t.Helper()
	if got.status != status || got.code != code || e.effects.Load() != effects {
		e.t.Errorf("%s: %d %q with %d effects, want %d %q with %d: %s", what, got.status, got.code, e.effects.Load(), status, code, effects, got.body)
	}
}

// TestReplay: the second request gets the first one's answer, and nothing is done again.
func TestReplay(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	first := e.ask("k", "1")
	e.want("the first", first, 201, "", 1)
	for _, key := range []string{"k", `"k"`} {
		again := e.ask(key, "1")
		e.want("again", again, 201, "", 1)
		if again.body != first.body || again.header.Get("Location") != "/charges/1" || again.header.Get(ReplayedHeader) != "true" || again.header.Get("Set-Cookie") != "" {
			t.Errorf("%+v after %+v", again, first)
		}
	}
	if first.header.Get(ReplayedHeader) != "" || first.header.Get("Set-Cookie") == "" {
		t.Errorf("the first answer: %v", first.header)
	}
	e.want("another caller's same key", e.ask("k", "1", "Tenant", "t2"), 201, "", 2)
}

// TestO53AnotherPayload is 422 in every state, also while the first is in progress and when its outcome is unknown.
func TestO53AnotherPayload(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	inside, release := make(chan struct{}), make(chan struct{})
	e.handle = func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	}
	done := make(chan told, 1)
	go func() {
		got, err := e.try("k", "1")
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	<-inside
	e.want("another payload in progress", e.ask("k", "2"), 422, "mismatch", 1)
	progress := e.ask("k", "1")
	e.want("the same in progress", progress, 409, "progress", 1)
	if progress.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(release)
	e.want("a status of 500", <-done, 500, "", 1)
	e.want("another payload when it is unknown", e.ask("k", "2"), 422, "mismatch", 1)
	e.want("the same when it is unknown", e.ask("k", "1"), 409, "unknown", 1)
	if _, err := e.store.Respond(t.Context(), operation.Response{ID: "http::k", Answer: operation.Answer{Known: operation.Effective, Result: Stored(201, nil, []byte("found"))}}); err != nil {
		t.Fatal(err)
	}
	found := e.ask("k", "1")
	e.want("when it is found", found, 201, "", 1)
	if found.body != "found" {
		t.Errorf("%q", found.body)
	}
	e.want("another payload after that", e.ask("k", "2"), 422, "mismatch", 1)
}

// TestO19ManyAtOnce: of 100 requests under one key one is done; the others are told that it is in progress, or its answer.
func TestO19ManyAtOnce(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			got, err := e.try("k", "1")
			if err != nil || got.status != 201 && got.code != "progress" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	e.want("after all", e.ask("k", "1"), 201, "", 1)
}

// TestStatuses: what a status says of the key.
func TestStatuses(t *testing.T) {
	for status, c := range map[int]struct {
		again   int // of a second request
		code    string
		effects int64
	}{
		200: {200, "", 1}, 404: {404, "", 1}, 422: {422, "", 1}, 429: {429, "", 2}, 503: {409, "unknown", 1}, 500: {409, "unknown", 1}, 502: {409, "unknown", 1}, 0: {409, "unknown", 1}, 1000: {409, "unknown", 1},
	} {
		e := newEndpoint(t, Options{}, nil)
		e.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		first := status
		if status < 100 || status > 599 {
			first = 500
		}
		e.want("the first", e.ask("k", "1"), first, "", 1)
		e.want(fmt.Sprint("after ", status), e.ask("k", "1"), c.again, c.code, c.effects)
	}
}

// TestWindow: a handler that may run again, does.
func TestWindow(t *testing.T) {
	e := newEndpoint(t, Options{Window: operation.Forever}, nil)
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		if job, ok := Attempt(r.Context()); !ok || job.Ordinal == 1 {
			panic("no")
		}
		fmt.Fprint(w, "now")
	}
	e.want("a panic", e.ask("k", "1"), 500, "unknown", 1)
	e.want("again", e.ask("k", "1"), 200, "", 2)
	e.want("and again", e.ask("k", "1"), 200, "", 2)
}

// TestO47Crash: a process that dies in the handler leaves an outcome that is unknown, neither done again nor in progress for ever, although no reconciler is there.
func TestO47Crash(t *testing.T) {
	e := newEndpoint(t, Options{Timeout: time.Minute}, nil)
	e.handle = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	broken, err := New(&stopped{Store: e.store}, Options{Scope: Everybody, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	// The same store, through a middleware whose process "dies": its completion never arrives.
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("1"))
	req.Header.Set(KeyHeader, "k")
	ctx, cancel := context.WithCancel(req.Context())
	w := httptest.NewRecorder()
	broken(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { e.effects.Add(1); cancel() })).ServeHTTP(w, req.WithContext(ctx))
	if w.Code != 500 {
		t.Errorf("an answer that was not recorded: %d", w.Code)
	}
	e.want("in progress", e.ask("k", "1"), 409, "progress", 1)
	e.store.Advance(time.Minute)
	e.want("after its time", e.ask("k", "1"), 409, "unknown", 1)
}

// stopped is a store that no completion reaches.
type stopped struct{ Store }

func (s *stopped) Complete(context.Context, []operation.Completion) ([]error, error) {
	return nil, &operation.InvalidError{Field: "completion", Problem: "it is lost"}
}

// TestOwnTransaction: a handler that completes its attempt itself is answered as if the middleware had.
func TestOwnTransaction(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		job, ok := Attempt(r.Context())
		if !ok {
			t.Error("no attempt")
			return
		}
		header := http.Header{"Content-Type": {"text/plain"}}
		errs, err := e.store.Complete(r.Context(), []operation.Completion{{Ref: job.Ref, Answer: operation.Answer{Known: operation.Effective, Result: Stored(202, header, []byte("mine"))}}})
		if err != nil || errs[0] != nil {
			t.Error(errs, err)
		}
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "mine")
	}
	first, again := e.ask("k", "1"), e.ask("k", "1")
	e.want("the first", first, 202, "", 1)
	e.want("again", again, 202, "", 1)
	if again.body != "mine" {
		t.Errorf("%q", again.body)
	}
	if rec, err := e.store.Get(t.Context(), "http::k"); err != nil || rec.ConflictCount != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestBadInput: a request that is refused has no effect.
func TestBadInput(t *testing.T) {
	e := newEndpoint(t, Options{MaxBody: 10}, nil)
	for what, c := range map[string]struct {
		key, body string
		header    []string
		status    int
		code      string
	}{
		"no key": {"", "1", nil, 400, "key"}, "an empty key": {`""`, "1", nil, 400, "key"}, "a key with a space": {"a b", "1", nil, 400, "key"},
		"a long key": {strings.Repeat("k", MaxKey+1), "1", nil, 400, "key"}, "two keys": {"k", "1", []string{KeyHeader, "l"}, 400, "key"},
		"a large body": {"k", strings.Repeat("1", 11), nil, 413, "body"}, "nobody": {"k", "1", []string{"Tenant", "nobody"}, 403, "scope"},
		"a scope that runs into the key": {"k", "1", []string{"Tenant", "a:b"}, 403, "scope"},
	} {
		e.want(what, e.ask(c.key, c.body, c.header...), c.status, c.code, 0)
	}
	e.want("the longest key", e.ask(strings.Repeat("k", MaxKey), "1", "Tenant", strings.Repeat("t", MaxScope)), 201, "", 1)
}

// TestOtherMethodsPass, and requests without a key where it is optional.
func TestOtherMethodsPass(t *testing.T) {
	e := newEndpoint(t, Options{Optional: true}, nil)
	e.want("without a key", e.ask("", "1"), 201, "", 1)
	resp, err := http.Get(e.url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || e.effects.Load() != 2 {
		t.Error(resp.Status, e.effects.Load())
	}
}

// TestLargeAnswer: one that cannot be kept is said to be done.
func TestLargeAnswer(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	e.handle = func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(bytes.Repeat([]byte("x"), MaxAnswer+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v", err)
		}
	}
	e.want("the first", e.ask("k", "1"), 500, "dropped", 1)
	e.want("again", e.ask("k", "1"), 409, "dropped", 1)
	e.handle = func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(bytes.Repeat([]byte("x"), MaxAnswer)); err != nil {
			t.Error(err)
		}
	}
	e.want("the largest", e.ask("l", "1"), 200, "", 2)
	if again := e.ask("l", "1"); again.status != 200 || len(again.body) != MaxAnswer {
		t.Errorf("%d with %d bytes", again.status, len(again.body))
	}
}

// TestOptions that make no sense.
func TestOptions(t *testing.T) {
	for what, o := range map[string]Options{
		"no scope": {}, "GET": {Scope: Everybody, Methods: []string{"GET"}}, "a long time": {Scope: Everybody, Timeout: 2 * time.Hour}, "a negative body": {Scope: Everybody, MaxBody: -1},
		"a negative window": {Scope: Everybody, Window: -1}, "a kind that is none": {Scope: Everybody, Kind: "a\x00"},
	} {
		if guard, err := New(memory.NewOperations(memory.Options{}), o); guard != nil || !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// forgetful is a broken middleware's store: it takes every submission for a new one.
type forgetful struct {
	Store
	n atomic.Int64
}

func (f *forgetful) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	req.ID += fmt.Sprint(f.n.Add(1))
	return f.Store.Submit(ctx, req)
}

// careless is one that says that what it does not know was not done.
type careless struct{ Store }

func (c careless) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	for i := range all {
		if all[i].Known == operation.NoAnswer {
			all[i].Known = operation.NotSent
		}
	}
	return c.Store.Complete(ctx, all)
}

// TestBrokenTwinsAreCaught: what TestReplay and TestStatuses look for is seen where it is broken.
func TestBrokenTwinsAreCaught(t *testing.T) {
	e := newEndpoint(t, Options{}, func(s Store) Store { return &forgetful{Store: s} })
	e.ask("k", "1")
	if e.ask("k", "1"); e.effects.Load() != 2 {
		t.Error("a store that forgets did not do it again")
	}
	e = newEndpoint(t, Options{}, func(s Store) Store { return careless{s} })
	e.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	e.ask("k", "1")
	if e.ask("k", "1"); e.effects.Load() != 2 {
		t.Error("a store that takes silence for nothing did not do it again")
	}
}
