package budget

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnothersFailureIsNotThisOnes: where one of several calls fails and ends the others' context with its error, as errgroup does, clients such as net/http's return that error for the others. What is known of the one is
// not known of them: they may have been done.
func TestAnothersFailureIsNotThisOnes(t *testing.T) {
	for name, sibling := range map[string]error{"not sent": failing(NotSent), "refused": failing(Refused), "no time": &NoTimeError{}, "gave up": &GaveUpError{Why: ErrAttempts, Last: errTest, Real: errTest, Class: NotSent, Attempts: 3}, "in between": fmt.Errorf("stock: %w", failing(NotSent))} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, time.Minute)
			ctx, cancel := context.WithCancelCause(b.Context())
			sent := func(ctx context.Context) error {
				cancel(sibling)
				<-ctx.Done()
				return fmt.Errorf("POST: %w", context.Cause(ctx))
			}
			if err := Do(ctx, Policy{}, sent); ClassOf(err) != Unknown {
				t.Errorf("%s: %v: %v", name, ClassOf(err), err)
			}
			ctx, cancel = context.WithCancelCause(b.Context())
			unsent := func(ctx context.Context) error {
				cancel(sibling)
				_, err := Outgoing(ctx)
				return err
			}
			if err := Do(ctx, Policy{}, unsent); ClassOf(err) != NotSent {
				t.Errorf("%s, and this was not sent: %v: %v", name, ClassOf(err), err)
			}
		})
	}
}
