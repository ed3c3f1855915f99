package budgethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Limits are what a service allows its callers.
type Limits struct {
	// Most is the longest that a request may take, whatever its caller waits for, and how long it may take where the caller has not said. More than 0.
	Most time.Duration
	// Reserve is kept of it for answering; see [budget.Reserve]. A request that leaves no more than this is refused.
	Reserve time.Duration
}

// Middleware gives the handler's context a budget: what the caller still waits for, and at most what the limits allow. A caller that has not said gets the most; one whose
// time has expired is answered 504 and the handler is not called, because nobody waits for its answer; what is no number is answered 400.
//
// It returns an error matching [budget.ErrInvalid] for limits that make no sense.
func Middleware(l Limits, next http.Handler) (http.Handler, error) {
	if l.Most <= 0 || l.Reserve < 0 || l.Reserve >= l.Most {
		return nil, &budget.InvalidError{Field: "limits", Problem: fmt.Sprintf("most %v, reserve %v; want a most above 0 and a reserve below it", l.Most, l.Reserve)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, wait, err := askedOf(r)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case asked == budget.Expired:
			refuse(w, http.StatusGatewayTimeout, "the caller's time has expired; nothing was started")
			return
		case asked == budget.Absent || wait > l.Most:
			wait = l.Most
		}
		if wait <= l.Reserve {
			refuse(w, http.StatusGatewayTimeout, fmt.Sprintf("%v are too little to answer in, which takes %v; nothing was started", wait, l.Reserve))
			return
		}
		b, err := budget.Start(r.Context(), wait, budget.Reserve(l.Reserve), budget.Named(r.Pattern))
		if err != nil {
			refuse(w, http.StatusServiceUnavailable, "there is no time for this request; nothing was started")
			return
		}
		defer b.End()
		next.ServeHTTP(w, r.WithContext(context.WithValue(b.Context(), attemptKey{}, budget.ParseAttempt(r.Header.Get(budget.HeaderAttempt)))))
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

func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set(budget.HeaderNoRetry, "1")
	http.Error(w, why, code)
}

type attemptKey struct{}

// CallersAttempt is which attempt of its caller a request is, from 1; 0: it has not said.
func CallersAttempt(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// Fail answers a request whose work failed with err: with what is known of it, when the caller may ask again, and the mark that it must not where the failure
// was repeated here already, so that layers do not multiply. A refusal is 503 if another attempt may find it otherwise, else 422; what was not done for want of time is 504, and
// so is what is unknown.
func Fail(w http.ResponseWriter, err error) {
	var gave *budget.GaveUpError
	var known *budget.Error
	code := http.StatusGatewayTimeout
	if errors.As(err, &known) {
		if known.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((known.RetryAfter+time.Second-1)/time.Second), 10))
		}
		switch {
		case known.Class == budget.Refused && (known.Again || known.RetryAfter > 0), known.Class == budget.NotSent:
			code = http.StatusServiceUnavailable
		case known.Class == budget.Refused:
			code = http.StatusUnprocessableEntity
		}
	}
	if errors.As(err, &gave) && gave.Attempts > 1 || known != nil && known.NoRetry {
		w.Header().Set(budget.HeaderNoRetry, "1")
	}
	http.Error(w, fmt.Sprintf("what is known of this request: %v", budget.ClassOf(err)), code)
}
