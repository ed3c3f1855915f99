package admission

import (
	"context"
	"errors"
	"net/http"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// Middleware lets requests in to next as l allows. priority says what a request is, by its route; nil: all is Work. What is shed is answered 503 with Retry-After and next is not called; see
// [budgethttp.Fail]. It stands behind [budgethttp.Middleware], so that a request waits no longer than its caller does.
//
// It is not for handlers of gRPC or Connect: it knows neither their deadlines (grpc-timeout, Connect-Timeout-Ms), so that a call could wait for its turn longer than its caller does, nor their failures, which are answered
// 200 with a status in the trailers, and its own answer is none of theirs. Those have interceptors of their own, in packages budgetgrpc/admissiongrpc and budgetconnect/admissionconnect, which may share l.
//
// A request holds its place until next returns, also one whose connection is taken over or that streams; how long that lasts is taken for a sign of how busy the service is, so a service with many of those gives them a
// limiter of their own. An answer below 400 counts as [Succeeded], one after the request's context has ended as [TimedOut], any other and a panic as [Failed].
func Middleware(l *Limiter, priority func(*http.Request) Priority, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := Work
		if priority != nil {
			p = priority(r)
		}
		release, err := l.acquire(r.Context(), p, budget.ParseAttempt(r.Header.Get(budget.HeaderAttempt)))
		if errors.Is(err, budget.ErrInvalid) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err != nil {
			budgethttp.Fail(w, err)
			return
		}
		seen := &answer{ResponseWriter: w, code: http.StatusOK}
		outcome := Failed // also if next panics
		defer func() { release(outcome) }()
		next.ServeHTTP(seen, r)
		switch {
		case errors.Is(r.Context().Err(), context.DeadlineExceeded):
			outcome = TimedOut
		case seen.code < http.StatusBadRequest:
			outcome = Succeeded
		}
	})
}

// answer notes the status. What else the writer can do is found by http.ResponseController.
type answer struct {
	http.ResponseWriter
	code int
}

func (a *answer) WriteHeader(code int) {
	if code >= http.StatusOK { // else another one follows
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush is for handlers that ask for an http.Flusher.
func (a *answer) Flush() {
	_ = http.NewResponseController(a.ResponseWriter).Flush() // an http.Flusher has nowhere to say that it cannot
}
