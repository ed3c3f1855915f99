package budget

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a context that knows how many others hang on it.
type counting struct {
	context.Context
	done chan struct{}
	held *atomic.Int64
}

func (c counting) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context asks of contexts that are not its own.
func (c counting) AfterFunc(func()) (stop func() bool) {
	c.held.Add(1)
	return func() bool { c.held.Add(-1); return true }
}

// TestAForgottenBudgetIsNotKept: the context that a budget was begun under, which may be that of a whole service, lets go of it when its time is over, whether somebody ends it or not.
func TestAForgottenBudgetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := counting{context.Background(), make(chan struct{}), new(atomic.Int64)}
		ended, err := Start(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		forgotten, err := Start(ctx, time.Second)
		if err != nil || ctx.held.Load() != 2 {
			t.Fatalf("%d hang on it, %v", ctx.held.Load(), err)
		}
		ended.End()
		<-forgotten.Context().Done()
		synctest.Wait()
		if n := ctx.held.Load(); n != 0 || ended.Context().Err() == nil {
			t.Errorf("%d still hang on it", n)
		}
	})
}
