package payments_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// The twins: handlers that are wrong.
const (
	timeoutIsFailure = "a timeout is taken for a failure"
	lookUpIsClosed   = "a look-up is taken for a closed key"
	oldKeyIsSent     = "a key is sent again after the provider has forgotten it"
)

// twin breaks a handler. An empty name breaks nothing.
func twin(name string, h *worker.Handler[payments.Order, payments.Paid]) {
	perform, inquire := h.Perform, h.Inquire
	switch name {
	case timeoutIsFailure:
		h.Perform = func(ctx context.Context, a *worker.Attempt, o payments.Order) (payments.Paid, error) {
			p, err := perform(ctx, a, o)
			if errors.Is(err, context.DeadlineExceeded) {
				err = &budget.Error{Class: budget.Refused, Err: errors.New("the provider did not answer in time")}
			}
			return p, err
		}
	case lookUpIsClosed:
		h.Inquire = func(ctx context.Context, rec *operation.Record, o payments.Order) (worker.Finding[payments.Paid], error) {
			f, err := inquire(ctx, rec, o)
			if f.What == operation.NotObserved {
				f.What = operation.Closed
			}
			return f, err
		}
	case oldKeyIsSent:
		h.Window = operation.Forever
	}
}

// played runs a small trial in this process, on a store in memory, and lets the audit's judge look at it.
func played(t *testing.T, a arm, name string) *verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, _, _ := settings(0)
	r := begin(t, a, 80, p, memory.NewOperations(memory.Options{}))
	j := r.job
	j.Twin, j.Reconciles, j.Book = name, true, r.bookName("worker", true)
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { r.submit(ctx) })
	all.Go(func() {
		if err := work(working, j, authority{ops: r.ops}); err != nil {
			t.Error(err)
		}
	})
	r.rest(ctx)
	r.close()
	stop()
	all.Wait()
	v, _ := r.judge(ctx)
	return v
}

// caught holds the judge to a twin, and to what is right under the same provider.
func caught(t *testing.T, a arm, name, complaint string) {
	t.Helper()
	right := a
	right.deaf = false
	for _, wrong := range played(t, right, "").wrong {
		t.Error(wrong)
	}
	v := played(t, a, name)
	for _, wrong := range v.wrong {
		if strings.Contains(wrong, complaint) {
			t.Logf("caught, %d times: %s", v.wrongs, wrong)
			return
		}
	}
	t.Errorf("%s, and nobody says %q: %q", name, complaint, v.wrong)
}

// slowly is a provider of which many requests have their effect after their client has given up.
func slowly(a arm, timeout time.Duration) arm {
	slow, _ := flakypay.Named("slow")
	slow.Before = 3 * timeout
	a.config.Script = func(c flakypay.Call) flakypay.Fault {
		if c.Verb == flakypay.Make && (strings.HasSuffix(c.Key, "3") || strings.HasSuffix(c.Key, "6")) {
			return slow
		}
		return flakypay.Fault{}
	}
	return a
}

func armOf(t *testing.T, name string, timeout time.Duration) arm {
	t.Helper()
	for _, a := range arms(timeout) {
		if a.name == name {
			return a
		}
	}
	t.Fatalf("no arm %q", name)
	return arm{}
}

// The judge catches a worker that says "failed" because nobody answered: the money has moved.
func TestTimeoutTakenForFailureIsCaught(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	caught(t, slowly(armOf(t, "forgets", timeout), timeout), timeoutIsFailure, "effects")
}

// The judge catches an inquiry that concludes from a look-up that nothing happened: the request lands after the look.
func TestLookUpTakenForClosedIsCaught(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	a := slowly(armOf(t, "keeps", timeout), timeout)
	a.terms.Keeps = 0 // no second attempt, so that everything depends on the look
	a.mayStayOpen = func(_ *operation.Record, t flakypay.Tally) bool { return t.Effects == 0 }
	caught(t, a, lookUpIsClosed, "decided wrongly")
}

// The judge catches a worker that sends a key again although its provider does not know it any more.
func TestForgottenKeySentAgainIsCaught(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	lost, _ := flakypay.Named("lost")
	a := armOf(t, "forgets", timeout)
	a.config.Chances = []flakypay.Chance{{Fault: lost, P: 0.3}}
	caught(t, a, oldKeyIsSent, fmt.Sprintf("%d effects", 2))
}

// The judge catches a webhook that acknowledges what it has not recorded: the provider does not say it again.
func TestWebhookThatForgetsIsCaught(t *testing.T) {
	t.Parallel()
	late, _ := flakypay.Named("late-webhook")
	a := armOf(t, "forgets", 100*time.Millisecond)
	a.deaf = true
	a.config.Chances = []flakypay.Chance{{Fault: late, P: 0.3}}
	caught(t, a, "", "undecided although an answer that was delivered decides it")
}
