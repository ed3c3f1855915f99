package admission

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// admit is a Limiter's Acquire, or a twin's.
type admit func(ctx context.Context, p Priority) (func(Outcome), error)

// backend does so many things at a time, in the order in which they come, and does not notice that nobody waits for a result any more.
type backend struct {
	mu   sync.Mutex
	free times // when each worker is, since at
	at   time.Time
	rand *rand.Rand
	slow atomic.Int64 // so many times as long as usual, where it is not 0
}

type times []time.Duration

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(any)          {} // nobody joins
func (t *times) Pop() any          { return nil }

const (
	workers  = 10
	mean     = 100 * time.Millisecond // of a piece of work, exponentially distributed
	capacity = float64(workers) / 0.1 // pieces of work a second
)

func newBackend() *backend {
	return &backend{free: make(times, workers), at: time.Now(), rand: rand.New(rand.NewPCG(1, 2))}
}

// do takes a piece of work of that mean length.
func (b *backend) do(mean time.Duration) {
	b.mu.Lock()
	length := time.Duration(b.rand.ExpFloat64() * float64(mean) * max(1, float64(b.slow.Load())))
	end := max(time.Since(b.at), b.free[0]) + length
	b.free[0] = end
	heap.Fix(&b.free, 0)
	b.mu.Unlock()
	<-time.After(end - time.Since(b.at))
}

// simulation is callers, a service that admits, and its backend.
type simulation struct {
	b       *backend
	admit   admit
	done    [2]atomic.Int64 // work and renewals answered in time
	offered [2]atomic.Int64
}

// serve is what the service does for one attempt. The caller may be gone before.
func (s *simulation) serve(ctx context.Context, p Priority, mean time.Duration) error {
	result := make(chan error, 1)
	go func() {
		release, err := s.admit(ctx, p)
		if err != nil {
			result <- err
			return
		}
		s.b.do(mean)
		outcome := Succeeded
		if ctx.Err() != nil {
			outcome = TimedOut
		}
		release(outcome)
		result <- nil
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return &budget.Error{Class: budget.Unknown, Phase: budget.PhaseAnswer, Err: ctx.Err()}
	}
}

// call is one caller: 2 s in all, and up to three attempts of 1 s.
func (s *simulation) call(counted bool) {
	b, err := budget.Start(context.Background(), 2*time.Second)
	if err != nil {
		return
	}
	defer b.End()
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Timeout: time.Second, Minimum: 200 * time.Millisecond}, Idempotent: true, Base: 10 * time.Millisecond}, func(ctx context.Context) error {
		return s.serve(ctx, Work, mean)
	})
	if counted {
		s.offered[0].Add(1)
		if err == nil {
			s.done[0].Add(1)
		}
	}
}

// renew is one renewal: a second, once.
func (s *simulation) renew(counted bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.serve(ctx, Renewal, time.Millisecond)
	if counted {
		s.offered[1].Add(1)
		if err == nil {
			s.done[1].Add(1)
		}
	}
}

// run offers so much of the capacity for so long, and 20 renewals a second.
func (s *simulation) run(load float64, seconds int, counted bool) {
	random := rand.New(rand.NewPCG(3, 4))
	begun := time.Now()
	var work, renewal time.Duration
	for second := range seconds {
		for end := time.Duration(second+1) * time.Second; min(work, renewal) < end; {
			next := &work
			rate := load * capacity
			if renewal < work {
				next, rate = &renewal, 20
			}
			<-time.After(*next - time.Since(begun))
			if next == &work {
				go s.call(counted)
			} else {
				go s.renew(counted)
			}
			*next += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		}
	}
}

// take is what became of what was offered since the last look: work answered in time, of what the backend can do in so many seconds, and renewals, of those offered.
func (s *simulation) take(seconds float64) (goodput, renewals float64) {
	able := capacity * seconds / max(1, float64(s.b.slow.Load()))
	goodput = float64(s.done[0].Swap(0)) / able
	renewals = float64(s.done[1].Swap(0)) / float64(s.offered[1].Swap(0))
	s.offered[0].Store(0)
	return goodput, renewals
}

// stories are what a service must live through.
func stories() map[string]func(s *simulation) error {
	return map[string]func(s *simulation) error{
		// Three times the capacity for 20 s, after a quiet time: the service does what it can all the while, and every renewal is answered.
		"overload": func(s *simulation) error {
			s.run(0.5, 20, false)
			s.run(3, 20, true)
			<-time.After(2 * time.Second)
			if goodput, renewals := s.take(20); goodput < 0.8 || renewals < 1 {
				return fmt.Errorf("goodput of %.2f of the capacity, %.3f of the renewals", goodput, renewals)
			}
			return nil
		},
		// The backend takes five times as long for three minutes, and is asked for three times what it can do: an eighth of what it does takes longer than its caller waits, even if it is begun at once.
		"slow backend": func(s *simulation) error {
			s.run(0.5, 20, false)
			s.run(1.5, 60, false)
			s.b.slow.Store(5)
			s.run(0.6, 60, false) // time to notice
			s.run(0.6, 120, true)
			if goodput, renewals := s.take(120); goodput < 0.55 || renewals < 0.95 {
				return fmt.Errorf("goodput of %.2f of the capacity, %.3f of the renewals", goodput, renewals)
			}
			return nil
		},
	}
}

func play(t *testing.T, story func(s *simulation) error, build func(l *Limiter) admit) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{b: newBackend(), admit: build(limiter(t, Options{RetryAfter: 100 * time.Millisecond}))} // so soon that those who are shed do come back
		err = story(s)
		<-time.After(10 * time.Hour) // what is left in queues
	})
	return err
}

func limiter(t testing.TB, o Options) *Limiter {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestStories plays them with the limiter.
func TestStories(t *testing.T) {
	for name, story := range stories() {
		if err := play(t, story, func(l *Limiter) admit { return l.Acquire }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func free(Outcome) {}

// TestTwins plays, for each twin, the story that must catch it.
func TestTwins(t *testing.T) {
	for name, twin := range map[string]struct {
		caught string
		build  func(l *Limiter) admit
	}{
		"everything is let in": {"overload", func(*Limiter) admit {
			return func(context.Context, Priority) (func(Outcome), error) { return free, nil }
		}},
		"retries go around it": {"overload", func(l *Limiter) admit {
			return func(ctx context.Context, p Priority) (func(Outcome), error) {
				if budget.AttemptNumber(ctx) > 1 {
					return free, nil
				}
				return l.Acquire(ctx, p)
			}
		}},
		"what has waited too long is run": {"overload", func(*Limiter) admit {
			slots := make(chan struct{}, 20)
			return func(context.Context, Priority) (func(Outcome), error) {
				slots <- struct{}{}
				return func(Outcome) { <-slots }, nil
			}
		}},
		"renewals wait with everybody": {"overload", func(l *Limiter) admit {
			return func(ctx context.Context, _ Priority) (func(Outcome), error) { return l.Acquire(ctx, Work) }
		}},
		"durations are all that it learns from": {"slow backend", func(l *Limiter) admit {
			return func(ctx context.Context, p Priority) (func(Outcome), error) {
				release, err := l.Acquire(ctx, p)
				return func(Outcome) { release(Succeeded) }, err
			}
		}},
	} {
		err := play(t, stories()[twin.caught], twin.build)
		if err == nil {
			t.Errorf("%s: %q does not catch it", name, twin.caught)
		}
		t.Logf("%s: %q says: %v", name, twin.caught, err)
	}
}
