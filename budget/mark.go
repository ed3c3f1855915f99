package budget

import "context"

// attemptContext tells what is sent which attempt it is, and whether those below may repeat it.
type attemptContext struct {
	context.Context
	n    int
	mark mark
}

// mark is what a context says of the mark that forbids repeating.
type mark int8

const (
	unsaid  mark = iota // what the context around it says
	marked              // it is there
	cleared             // it is not, whatever the context around it says
)

type (
	attemptKey struct{}
	markKey    struct{}
)

func (c *attemptContext) Value(key any) any {
	switch {
	case key == (attemptKey{}):
		return c.n
	case key == (markKey{}) && c.mark != unsaid:
		return c.mark == marked
	}
	return c.Context.Value(key)
}

// AttemptNumber is which attempt of a [Do] a context is of, from 1; 0: of none.
func AttemptNumber(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// NoRetry returns a context with the mark that leaves repeating to a layer above: a [Do] under it makes one attempt, and requests that are made under it carry the mark on. The mark spares work and
// protects nobody: who does not know it repeats all the same, as libraries do that repeat by themselves.
//
// A Do marks the contexts of its attempts by [Policy]'s NoRetryBelow, and the adapters that of a request that came with the mark.
func NoRetry(ctx context.Context) context.Context {
	return &attemptContext{Context: ctx, n: AttemptNumber(ctx), mark: marked}
}

// ForbidsRetry reports whether a context carries the mark of [NoRetry].
func ForbidsRetry(ctx context.Context) bool {
	forbidden, _ := ctx.Value(markKey{}).(bool)
	return forbidden
}

// WithoutAttempt returns a context that is of no attempt and carries no mark, and is as ctx otherwise. It is for work that others wait for too, or that goes on when the request that began it is
// over: neither is another attempt of it, nor does who repeats that request repeat the work.
func WithoutAttempt(ctx context.Context) context.Context {
	return &attemptContext{Context: ctx, mark: cleared}
}
