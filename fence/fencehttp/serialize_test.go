package fencehttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// claimed is a claim of one authority to a name.
func claimed(name string, token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{1}, Name: name, Acquisition: fence.ID{2, byte(token)}, Token: token}
}

func turns(t *testing.T, o SerializeOptions) *Serializer {
	t.Helper()
	s, err := NewSerializer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waiting starts a request that notes its label when its turn comes, and gives it up at once.
func waiting(ctx context.Context, s *Serializer, label string, claim fence.Claim, note func(string)) {
	go func() {
		turn, err := s.wait(ctx, "r", claim)
		if err != nil {
			note(label + ": " + kindOf(err))
			return
		}
		note(label)
		turn.release()
	}()
	synctest.Wait()
}

func kindOf(err error) string {
	switch {
	case errors.Is(err, ErrBusy):
		return "busy"
	case errors.Is(err, context.Canceled):
		return "gone"
	}
	return err.Error()
}

// notes collects labels in order.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) add(label string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, label)
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.all, want) {
		t.Errorf("got %q, want %q", n.all, want)
	}
}

func idle(t *testing.T, s *Serializer) {
	t.Helper()
	if working, waiting := s.Busy(); working != 0 || waiting != 0 {
		t.Errorf("%d resources at work and %d waiting are left", working, waiting)
	}
}

// TestTurnsGoToTheNewestFirst: of one lease's waiters the highest token goes first, equal ones in their order; another lease's
// tokens are not compared.
func TestTurnsGoToTheNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := turns(t, SerializeOptions{Wait: time.Minute}), new(notes)
		turn, err := s.wait(t.Context(), "r", claimed("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		waiting(t.Context(), s, "a6 first", claimed("a", 6), n.add)
		waiting(t.Context(), s, "b9", claimed("b", 9), n.add)
		waiting(t.Context(), s, "a5", claimed("a", 5), n.add)
		waiting(t.Context(), s, "a7", claimed("a", 7), n.add)
		waiting(t.Context(), s, "a6 second", claimed("a", 6), n.add)
		n.want(t)
		turn.release()
		synctest.Wait()
		n.want(t, "a7", "a6 first", "b9", "a6 second", "a5") // b9 had then waited longest
		idle(t, s)
	})
}

// TestWaitIsBounded: a request waits for as long as it may and no longer, and other resources do not wait at all.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := turns(t, SerializeOptions{Wait: 3 * time.Second})
		turn, err := s.wait(t.Context(), "r", claimed("a", 1))
		if err != nil {
			t.Fatal(err)
		}
		if other, err := s.wait(t.Context(), "other", claimed("a", 1)); err != nil {
			t.Error(err)
		} else {
			other.release()
		}
		began := time.Now()
		_, err = s.wait(t.Context(), "r", claimed("a", 2))
		if busy := new(BusyError); !errors.As(err, &busy) || busy.After <= 0 || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		turn.release()
		idle(t, s)
	})
}

// TestQueueIsBounded: a full queue refuses who is not newer, and gives a newer one the place of an older.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := turns(t, SerializeOptions{Wait: time.Minute, Queue: 2}), new(notes)
		turn, err := s.wait(t.Context(), "r", claimed("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		waiting(t.Context(), s, "first 5", claimed("a", 5), n.add)
		waiting(t.Context(), s, "second 5", claimed("a", 5), n.add)
		waiting(t.Context(), s, "third 5", claimed("a", 5), n.add)
		waiting(t.Context(), s, "4", claimed("a", 4), n.add)
		n.want(t, "third 5: busy", "4: busy")
		waiting(t.Context(), s, "other", claimed("b", 9), n.add)
		waiting(t.Context(), s, "6", claimed("a", 6), n.add)
		n.want(t, "third 5: busy", "4: busy", "other: busy", "second 5: busy")
		turn.release()
		synctest.Wait()
		n.want(t, "third 5: busy", "4: busy", "other: busy", "second 5: busy", "6", "first 5")
		idle(t, s)
	})
}

// TestResourcesAreBounded: beyond the number of resources nobody begins; who waits for one that is at work is not concerned.
func TestResourcesAreBounded(t *testing.T) {
	s := turns(t, SerializeOptions{Resources: 2})
	var held []*turn
	for i := range 2 {
		turn, err := s.wait(t.Context(), fmt.Sprint(i), claimed("a", 1))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, turn)
	}
	if _, err := s.wait(t.Context(), "2", claimed("a", 1)); !errors.Is(err, ErrBusy) {
		t.Errorf("a third resource: %v", err)
	}
	held[0].release()
	turn, err := s.wait(t.Context(), "2", claimed("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	turn.release()
	held[1].release()
	idle(t, s)
}

// TestWhoGoesAwayFreesItsPlace: a caller that is gone takes no turn, and nobody waits behind it.
func TestWhoGoesAwayFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := turns(t, SerializeOptions{Wait: time.Minute, Queue: 1}), new(notes)
		turn, err := s.wait(t.Context(), "r", claimed("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		waiting(gone, s, "gone", claimed("a", 9), n.add)
		leave()
		synctest.Wait()
		waiting(t.Context(), s, "next", claimed("a", 6), n.add)
		if _, err := s.wait(gone, "free", claimed("a", 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn for who is gone: %v", err)
		}
		turn.release()
		synctest.Wait()
		n.want(t, "gone: gone", "next")
		idle(t, s)
	})
}

// TestHoldKeepsTheTurn: work that a handler leaves behind keeps its successor waiting.
func TestHoldKeepsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := turns(t, SerializeOptions{Wait: time.Minute}), new(notes)
		turn, err := s.wait(t.Context(), "r", claimed("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(t.Context(), turnKey{}, turn)
		first, second := Hold(ctx), Hold(ctx)
		turn.release()
		waiting(t.Context(), s, "next", claimed("a", 6), n.add)
		first()
		first()
		synctest.Wait()
		n.want(t)
		second()
		synctest.Wait()
		n.want(t, "next")
		Hold(ctx)() // too late: it must take nothing away
		Hold(t.Context())()
		idle(t, s)
	})
}

// TestTurnsExclude: many at a time, with some that go away just when their turn comes, and never two at work.
func TestTurnsExclude(t *testing.T) {
	s := turns(t, SerializeOptions{Wait: time.Minute, Queue: 1000})
	var all sync.WaitGroup
	var mu sync.Mutex
	atWork, most, served := 0, 0, 0
	for i := range 400 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			turn, err := s.wait(ctx, fmt.Sprint(i%2), claimed("a", fence.Token(i/20+1)))
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			atWork++
			most = max(most, atWork)
			served++
			mu.Unlock()
			mu.Lock()
			atWork--
			mu.Unlock()
			turn.release()
		})
	}
	all.Wait()
	if most > 2 || served < 200 { // two resources
		t.Errorf("%d at work at a time on two resources, %d served", most, served)
	}
	idle(t, s)
}

func TestSerializerOptions(t *testing.T) {
	for _, o := range []SerializeOptions{{Wait: -1}, {Queue: -1}, {Resources: -1}} {
		if _, err := NewSerializer(o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
