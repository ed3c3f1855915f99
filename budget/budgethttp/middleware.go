package budgethttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Middleware gives the handler's context a budget: what the caller still waits for, and at most what the limits allow. A caller that has not said gets the most; one whose
// time has expired, or does not hold the reserve, is answered 504 with [budget.HeaderNotStarted], which [ErrorOf] reads as a refusal, and the handler is not called, because nobody waits for its
// answer; what is no number is answered 400. A request that came with the mark of [budget.NoRetry] has a marked context: its handler's [budget.Do] repeats nothing. Attempt numbers and marks
// that are none are taken for absent.
//
// It returns an error matching [budget.ErrInvalid] for limits that make no sense.
func Middleware(l Limits, next http.Handler) (http.Handler, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, wait, err := askedOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b, err := l.Start(r.Context(), r.Pattern, asked, wait)
		if err != nil {
			w.Header().Set(budget.HeaderNotStarted, "1")
			w.Header().Set(budget.HeaderNoRetry, "1") // the caller's time will not be more by the next attempt
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
			return
		}
		defer b.End()
		ctx := WithCallersMark(WithCallersAttempt(b.Context(), r.Header.Get(budget.HeaderAttempt)), r.Header.Get(budget.HeaderNoRetry))
		next.ServeHTTP(w, r.WithContext(ctx))
	}), nil
}

func askedOf(r *http.Request) (budget.Asked, time.Duration, error) {
	values := r.Header.Values(budget.HeaderRemaining)
	if len(values) > 1 {
		return 0, 0, &budget.InvalidError{Field: budget.HeaderRemaining, Problem: "it is there more than once"}
	}
	if len(values) == 0 {
		return budget.ParseMillis("", false)
	}
	return budget.ParseMillis(values[0], true)
}

// Fail answers a request whose work failed with err: with what is known of it, when the caller may ask again, and the mark that it must not where the failure
// was repeated here already, or was not for want of tokens, so that layers do not multiply. A refusal is 503 with Retry-After if another attempt may find it otherwise,
// else 422; what was not sent is 503 with Retry-After; what was not started for want of time is 504 with [budget.HeaderNotStarted], and what is unknown is 504 without. Headers of these names that were set before are
// taken away.
//
// err is taken for what is known of the whole request. A handler that had done something before, and then found no time or no connection for the rest, says so: Fail(w, &budget.Error{Class: budget.Unknown, Err: err}).
func Fail(w http.ResponseWriter, err error) {
	var known *budget.Error
	for _, name := range []string{budget.HeaderNotStarted, budget.HeaderNoRetry, "Retry-After"} { // who has copied an answer from below has not said this of its own work
		w.Header().Del(name)
	}
	code := http.StatusGatewayTimeout
	class := budget.ClassOf(err)
	if errors.As(err, &known) {
		switch {
		case class == budget.Refused && (known.Again || known.RetryAfter > 0), class == budget.NotSent:
			code = http.StatusServiceUnavailable
		case class == budget.Refused:
			code = http.StatusUnprocessableEntity
		}
		if known.RetryAfter > 0 || code == http.StatusServiceUnavailable { // without it 503 proves nothing: see ErrorOf
			w.Header().Set("Retry-After", strconv.FormatInt(int64((min(max(0, known.RetryAfter), maxRetryAfter)+time.Second-1)/time.Second), 10))
		}
	} else if class == budget.NotSent {
		w.Header().Set(budget.HeaderNotStarted, "1")
	}
	if NoRetry(err) {
		w.Header().Set(budget.HeaderNoRetry, "1")
	}
	http.Error(w, fmt.Sprintf("what is known of this request: %v", class), code)
}

// NoRetry reports whether a failure is told with the mark that asks the caller not to repeat it: somebody behind asked for that, it was repeated here, or the
// throttle has forbidden it. It is for adapters.
func NoRetry(err error) bool {
	return errors.Is(err, budget.ErrThrottled) || forbids(err, false)
}

// forbids looks through all that err wraps: a Do that made one attempt may be around one that made several. known is whether an outer error has said already what the other side asked for.
func forbids(err error, known bool) bool {
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case *budget.GaveUpError:
		return e.Attempts > 1 || forbids(e.Last, known)
	case *budget.Error:
		return e.NoRetry && !known || forbids(e.Err, true)
	case interface{ Unwrap() error }:
		return forbids(e.Unwrap(), known)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(one error) bool { return forbids(one, known) })
	}
	return false
}
