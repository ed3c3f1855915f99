package postgres

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// TestOutboxClockSteps: a step forward ends claims early, and what their relays say then is late once another has followed. A step back lets claims and back-offs last longer by as much, and holds up nothing else: neither
// what was appended before it nor what an operator has moved.
func TestOutboxClockSteps(t *testing.T) {
	r := &rig{t: t, harness: newHarness(t)}
	p := newPost(r)
	ctx := t.Context()
	h := &outboxHarness{r.harness}
	step := func(d time.Duration) {
		if err := h.Advance(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	p.append(ctx, p.note("", "a"), p.note("k", "1"), p.note("k", "2"))
	x := p.take(ctx, "a", "1", "2")
	step(time.Hour)
	y := p.take(ctx, "a", "1", "2")
	if done, err := p.outbox.Settle(ctx, x.verdicts(outbox.Verdict{Outcome: outbox.Published})); err != nil || done.Applied != 0 || len(done.Late) != 3 {
		t.Fatalf("after a step forward, the relay that believes still: %+v, %v", done, err)
	}
	p.append(ctx, p.note("", "b"), p.note("l", "3"))
	step(-time.Hour)
	z := p.take(ctx, "b", "3") // and nothing of y's
	p.publish(ctx, y)
	p.publish(ctx, z)
	p.append(ctx, p.note("k", "4"))
	c := p.take(ctx, "4")
	if _, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Failed, Error: "no", RetryIn: time.Minute})); err != nil {
		t.Fatal(err)
	}
	p.take(ctx)
	if n, err := p.outbox.Replay(ctx, outbox.MoveRequest{Key: "k", Limit: 1}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	step(-time.Hour)
	p.publish(ctx, p.take(ctx, "1"))
	p.take(ctx)
	step(time.Hour + 2*time.Minute)
	p.publish(ctx, p.take(ctx, "4"))
	if err := h.Check(ctx); err != nil {
		t.Error(err)
	}
}
