package budgethttp

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Limits are what a service allows its callers, in each protocol that it speaks.
type Limits struct {
	// Most is the longest that a request may take, whatever its caller waits for, and how long it may take where the caller has not said. More than 0, and at most a year.
	Most time.Duration
	// Reserve is kept of it for answering; see [budget.Reserve]. A request that leaves no more than this is refused.
	Reserve time.Duration
}

const maxMost = 24 * time.Hour * 366 // that a budget may have

// Check returns an error matching [budget.ErrInvalid] for limits that make no sense.
func (l Limits) Check() error {
	if l.Most <= 0 || l.Most > maxMost || l.Reserve < 0 || l.Reserve >= l.Most {
		return &budget.InvalidError{Field: "limits", Problem: fmt.Sprintf("most %v, reserve %v; want a most above 0 and up to %v, and a reserve below it", l.Most, l.Reserve, maxMost)}
	}
	return nil
}

// Start begins the budget of a request whose caller has said asked, and wait where that is [budget.Positive]: at most Most, which is also what a caller gets that has
// not said. name is what [budget.Budget.Explain] calls it; "" is "budget". Who serves the request calls End.
//
// It returns an error matching [budget.ErrNoTime] for a caller whose time has expired or does not hold the reserve, and for a ctx that has no more left.
// Nothing was started then.
func (l Limits) Start(ctx context.Context, name string, asked budget.Asked, wait time.Duration) (*budget.Budget, error) {
	switch {
	case asked == budget.Expired:
		wait = 0
	case asked == budget.Absent || wait > l.Most:
		wait = l.Most
	}
	options := []budget.Option{budget.Reserve(l.Reserve)}
	if name != "" {
		options = append(options, budget.Named(name))
	}
	if wait <= l.Reserve {
		return nil, &budget.NoTimeError{What: "a request", Needs: l.Reserve + 1, Left: wait - l.Reserve, Reserve: l.Reserve}
	}
	return budget.Start(ctx, wait, options...)
}

type attemptKey struct{}

// WithCallersMark returns a context that carries the mark of [budget.NoRetry] if that is what a caller has sent; text that is none says nothing. It is for adapters.
func WithCallersMark(ctx context.Context, text string) context.Context {
	if !budget.ParseNoRetry(text) {
		return ctx
	}
	return budget.NoRetry(ctx)
}

// WithCallersAttempt returns a context from which [CallersAttempt] reads what a caller has sent as the number of its attempt. It is for adapters.
func WithCallersAttempt(ctx context.Context, text string) context.Context {
	n := budget.ParseAttempt(text)
	if n == 0 {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, n)
}

// CallersAttempt is which attempt of its caller a request is, from 1; 0: it has not said.
func CallersAttempt(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}
