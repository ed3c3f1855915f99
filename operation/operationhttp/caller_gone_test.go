package operationhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// TestCallerGone: a caller that gives up waiting takes nothing away from the handler, and gets its answer when it asks again.
func TestCallerGone(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	inside, gone, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-gone
		ended <- r.Context().Err()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "done")
	}
	e.gone = sync.OnceFunc(func() { close(gone) })
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/charges", strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(KeyHeader, "k")
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-inside
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that went got %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the handler's context has ended with its caller: %v", err)
	}
	if rec, err := operation.Wait(t.Context(), e.store, "http::k"); err != nil || rec.State != operation.Succeeded {
		t.Fatalf("%v, %v", rec.State, err)
	}
	again := e.ask("k", "1")
	e.want("again", again, 201, "", 1)
	if again.body != "done" {
		t.Errorf("%q", again.body)
	}
}

// TestSilentHandler: one that returns without a word because its time is over has not said that it was done.
func TestSilentHandler(t *testing.T) {
	e := newEndpoint(t, Options{Timeout: 10 * time.Millisecond}, nil)
	e.handle = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	e.want("a handler whose time was over", e.ask("k", "1"), 500, "unknown", 1)
	if again := e.ask("k", "1"); again.status != 409 || again.code != "unknown" {
		t.Errorf("again: %+v", again)
	}
	e = newEndpoint(t, Options{}, nil) // within its time, net/http takes it for 200
	e.handle = func(http.ResponseWriter, *http.Request) {}
	e.want("nothing to say", e.ask("k", "1"), 200, "", 1)
	e.want("again", e.ask("k", "1"), 200, "", 1)
}

// replyLost is a store whose first claim is made, and not told of.
type replyLost struct {
	Store
	lost bool
}

func (s *replyLost) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	jobs, err := s.Store.Claim(ctx, req)
	if !s.lost && err == nil {
		s.lost = true
		return nil, &operation.UnknownError{Op: "claim", Err: errors.New("connection reset")}
	}
	return jobs, err
}

// TestClaimReplyLost: an attempt that no handler was called for is known to be none.
func TestClaimReplyLost(t *testing.T) {
	e := newEndpoint(t, Options{Worker: strings.Repeat("w", operation.MaxWorker)}, func(s Store) Store { return &replyLost{Store: s} })
	e.want("the reply is lost", e.ask("k", "1"), 503, "unavailable", 0)
	e.want("again", e.ask("k", "1"), 201, "", 1)
}

// TestCallerGoneBeforeTheClaim: the claim is not made with the caller's context, or its reply would be lost with the caller.
func TestCallerGoneBeforeTheClaim(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	guard, err := New(&leavesAt{Store: e.store, leave: cancel}, Options{Scope: Everybody})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/charges", strings.NewReader("1"))
	req.Header.Set(KeyHeader, "k")
	guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Err()) })).ServeHTTP(httptest.NewRecorder(), req)
	if rec, err := e.store.Get(t.Context(), "http::k"); err != nil || rec.State != operation.Succeeded {
		t.Errorf("%v, %v", rec.State, err)
	}
}

// TestGuardedTwice: a middleware that stands twice in the way, by mistake, does not take its own request for one in progress.
func TestGuardedTwice(t *testing.T) {
	e := newEndpoint(t, Options{}, nil)
	guard, err := New(e.store, Options{Scope: Everybody})
	if err != nil {
		t.Fatal(err)
	}
	service := guard(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, e.effects.Add(1)) })))
	for range 2 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("1"))
		req.Header.Set(KeyHeader, "k")
		w := httptest.NewRecorder()
		service.ServeHTTP(w, req)
		if w.Code != 200 || w.Body.String() != "1" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

type leavesAt struct {
	Store
	leave context.CancelFunc
}

func (s *leavesAt) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	defer s.leave()
	return s.Store.Submit(ctx, req)
}

// completedUnheard is a store whose first completion is made, and not told of.
type completedUnheard struct {
	Store
	lost bool
}

func (s *completedUnheard) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	errs, err := s.Store.Complete(ctx, all)
	if !s.lost && err == nil {
		s.lost = true
		return nil, &operation.UnknownError{Op: "complete", Err: errors.New("connection reset")}
	}
	return errs, err
}

// TestCompleteReplyLost: an answer of which it is not known whether it was recorded is found to have been, whatever it says.
func TestCompleteReplyLost(t *testing.T) {
	for status, c := range map[int]struct {
		again   int
		code    string
		effects int64
	}{201: {201, "", 1}, 429: {201, "", 2}, 500: {409, "unknown", 1}} {
		e := newEndpoint(t, Options{}, func(s Store) Store { return &completedUnheard{Store: s} })
		e.handle = func(w http.ResponseWriter, r *http.Request) {
			if job, _ := Attempt(r.Context()); job.Ordinal > 1 {
				w.WriteHeader(http.StatusCreated)
				return
			}
			w.WriteHeader(status)
		}
		e.want("the first", e.ask("k", "1"), status, "", 1)
		e.want(fmt.Sprint("again, after ", status), e.ask("k", "1"), c.again, c.code, c.effects)
		if rec, err := e.store.Get(t.Context(), "http::k"); err != nil || rec.ConflictCount != 0 {
			t.Errorf("%d: %+v, %v", status, rec.Conflicts, err)
		}
	}
}
