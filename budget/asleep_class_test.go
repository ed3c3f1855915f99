package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatWasSentBeforeASleepIsUnknown: an attempt that was under way when its budget was slept through may have been done. Its context's cause, which clients such as net/http's return, must not say otherwise, nor
// may a call around it be repeated for that.
func TestWhatWasSentBeforeASleepIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		outer := start(t, time.Hour)
		sent := 0
		err := Do(outer.Context(), Policy{Base: 1, Most: 1}, func(ctx context.Context) error {
			inner, err := Start(ctx, 5*time.Second, whole(m))
			if err != nil {
				return err
			}
			defer inner.End()
			return Do(WithoutAttempt(inner.Context()), Policy{Attempts: 1}, func(ctx context.Context) error {
				sent++
				m.slept += time.Minute
				inner.Remaining()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		if sent != 1 || ClassOf(err) != Unknown || errors.Is(err, ErrNoTime) {
			t.Errorf("sent %d times; %v: %v", sent, ClassOf(err), err)
		}
		bare := 0
		err = Do(outer.Context(), Policy{Base: 1, Most: 1}, func(ctx context.Context) error {
			inner, err := Start(ctx, 5*time.Second, whole(m))
			if err != nil {
				return err
			}
			defer inner.End()
			bare++
			m.slept += time.Minute
			inner.Remaining()
			<-inner.Context().Done()
			return context.Cause(inner.Context())
		})
		if bare != 1 || ClassOf(err) != Unknown || !timedOut(err) {
			t.Errorf("sent %d times; %v: %v", bare, ClassOf(err), err)
		}
	})
}

// TestWhatIsCutOffIsNotHeldToTheRest: work that was cut off from a budget that was slept through in part has its own time.
func TestWhatIsCutOffIsNotHeldToTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		b := start(t, 10*time.Second, whole(m))
		m.slept = 4 * time.Second
		apart, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), 30*time.Second)
		defer cancel()
		if w, err := Outgoing(apart); err != nil || w.Remaining != 30*time.Second {
			t.Errorf("%+v, %v", w, err)
		}
		own, err := Start(apart, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer own.End()
		if own.Total() != 20*time.Second {
			t.Errorf("a budget of its own has %v", own.Total())
		}
	})
}

// TestASleepIsSeenHoweverSlowTheLookIs: the process may be held up between the readings of two clocks, above all after a resume.
func TestASleepIsSeenHoweverSlowTheLookIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		held := time.Duration(0)
		b := start(t, time.Hour, func(b *Budget) {
			b.asleep.wall = m.wall
			b.asleep.boot = func() time.Duration {
				at := m.boot()
				<-time.After(held)
				held = 0
				return at
			}
		})
		m.slept, held = 5*time.Second, 6*time.Second
		b.Remaining()
		if left, want := b.Remaining(), time.Hour-11*time.Second; left != want {
			t.Errorf("%v are left, want %v", left, want)
		}
	})
}

// TestASleepIsSeenByEverybodyAtOnce: who looks while another finds out how long the machine slept does not believe that it did not.
func TestASleepIsSeenByEverybodyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		hold, looks := make(chan struct{}), 0
		b := start(t, 10*time.Second, func(b *Budget) {
			b.asleep.wall = m.wall
			b.asleep.boot = func() time.Duration {
				if looks++; looks == 2 { // the first is of the beginning
					<-hold
				}
				return m.boot()
			}
		})
		m.slept = time.Minute
		first := make(chan time.Duration)
		go func() { first <- b.Remaining() }()
		synctest.Wait()
		if left := b.Remaining(); left != 0 {
			t.Errorf("%v are left", left)
		}
		close(hold)
		if left := <-first; left != 0 {
			t.Errorf("%v are left", left)
		}
	})
}
