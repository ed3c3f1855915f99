//go:build unix

package phases

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// How long calls wait: for what never comes, and where they must come to a certain phase first on a machine that does ten other things.
const (
	soon = 400 * time.Millisecond
	late = 1500 * time.Millisecond
)

// scene is one way for a call to fail.
type scene struct {
	name  string
	class budget.Class
	phase []budget.Phase // one of these: some clients tell the one or the other, as it comes
	done  bool           // the service has done it all the same
	play  player
}

// player makes one call that waits for soon or late, as many times as slow says, and counts how often the service has begun to do it so far.
type player func(t *testing.T, slow patience) (count func() int, err error)

// patience is how many times as long as usual calls wait.
type patience int

func (p patience) times(d time.Duration) time.Duration { return time.Duration(p) * d }

// slowest is the longest.
const slowest = 9

// outcome is what was said of a call, and what the service knows of it.
type outcome struct {
	*scene
	protocol string
	err      error
	count    int
}

type ledger struct {
	mu  sync.Mutex
	all []outcome
}

// together is how many scenes are played at a time. They mostly wait, so it is not the number of processors, which t.Parallel would take.
const together = 24

// play plays the scenes of all protocols beside each other.
func (l *ledger) play(t *testing.T, protocols map[string][]scene) {
	t.Helper()
	var group sync.WaitGroup
	places := make(chan struct{}, together)
	for protocol, scenes := range protocols {
		for i := range scenes {
			s := &scenes[i]
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				t.Run(protocol+", "+s.name, func(t *testing.T) { l.one(t, protocol, s) })
			})
		}
	}
	group.Wait()
}

// one plays a scene, and again with more patience where the call ended elsewhere: a machine that does ten other things ends it before it has come so far. That a call is said
// not to have been sent and was done is never forgiven.
func (l *ledger) one(t *testing.T, protocol string, s *scene) {
	t.Helper()
	var o outcome
	for slow := patience(1); slow <= slowest; slow *= 3 {
		count, err := s.play(t, slow)
		if s.done {
			await(count, 1, slow.times(5*time.Second))
		}
		o = outcome{s, protocol, err, count()}
		if wrong := judge([]outcome{o}, sound); wrong == nil && (!s.done || o.count > 0) || wrong != nil && strings.Contains(wrong.Error(), guarantee) {
			break
		}
	}
	if s.done && o.count != 1 {
		t.Errorf("the service has done it %d times", o.count)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}

// await waits until count has come to n, or for so long.
func await(count func() int, n int, wait time.Duration) {
	for end := time.Now().Add(wait); count() < n && time.Now().Before(end); {
		<-time.After(5 * time.Millisecond)
	}
}

// classifier says what is known of a call that failed, and in which phase.
type classifier func(error) (budget.Class, budget.Phase)

func sound(err error) (budget.Class, budget.Phase) {
	var known *budget.Error
	if !errors.As(err, &known) {
		return budget.ClassOf(err), ""
	}
	return budget.ClassOf(err), known.Phase
}

// guarantee is broken where a call is said not to have been sent that was done.
const guarantee = "said not to have been sent, and was done"

// judge compares what a classifier says with what was so.
func judge(all []outcome, say classifier) error {
	var wrong []error
	for _, o := range all {
		if o.err == nil {
			wrong = append(wrong, fmt.Errorf("%s, %s: it did not fail", o.protocol, o.name))
			continue
		}
		class, phase := say(o.err)
		switch {
		case class == budget.NotSent && o.count > 0:
			wrong = append(wrong, fmt.Errorf("%s, %s: %s: %w", o.protocol, o.name, guarantee, o.err))
		case class != o.class || !slices.Contains(o.phase, phase):
			wrong = append(wrong, fmt.Errorf("%s, %s: %v (%s), want %v %q, done %d times: %w", o.protocol, o.name, class, phase, o.class, o.phase, o.count, o.err))
		}
	}
	return errors.Join(wrong...)
}

func isTimeout(err error) bool {
	var timed net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout() || strings.Contains(err.Error(), "DeadlineExceeded")
}

// in is the phases that a scene may end in.
func in(phases ...budget.Phase) []budget.Phase { return phases }

// twins are classifiers as they are often written.
func twins() map[string]classifier {
	return map[string]classifier{
		"every timeout is not sent": func(err error) (budget.Class, budget.Phase) {
			class, phase := sound(err)
			if isTimeout(err) {
				class = budget.NotSent
			}
			return class, phase
		},
		"every broken connection is not sent": func(err error) (budget.Class, budget.Phase) {
			class, phase := sound(err)
			if !isTimeout(err) {
				class = budget.NotSent
			}
			return class, phase
		},
		"everything is unknown": func(err error) (budget.Class, budget.Phase) {
			_, phase := sound(err)
			return budget.Unknown, phase
		},
	}
}

// TestPhases: what is said of a call in each phase is what the service knows of it, and none of the twins says the same.
func TestPhases(t *testing.T) {
	l := &ledger{}
	l.play(t, map[string][]scene{
		"http/1.1": httpScenes(false), "http/2": httpScenes(true), "connect": connectScenes(), "grpc": grpcScenes(), "pgx": pgxScenes(), "database/sql": databaseSQLScenes(),
	})
	if err := judge(l.all, sound); err != nil {
		t.Error(err)
	}
	for name, twin := range twins() {
		t.Run(name, func(t *testing.T) {
			protocols := map[string][]outcome{}
			for _, o := range l.all {
				protocols[o.protocol] = append(protocols[o.protocol], o)
			}
			for protocol, all := range protocols {
				err := judge(all, twin)
				if err == nil {
					t.Errorf("%s: it passes", protocol)
				} else if !strings.HasPrefix(name, "everything") && !strings.Contains(err.Error(), guarantee) {
					t.Errorf("%s: it does not break the guarantee: %v", protocol, err)
				}
			}
		})
	}
}

// TestUnknownIsNotRepeated: a call whose answer is lost is made once, and again only where it was declared idempotent.
func TestUnknownIsNotRepeated(t *testing.T) {
	var group sync.WaitGroup
	for protocol, deaf := range map[string]func(t *testing.T) (call func(context.Context) error, count func() int){
		"http/1.1": deafHTTP(false), "http/2": deafHTTP(true), "connect": deafConnect, "grpc": deafGRPC, "pgx": deafSQL(overPgx), "database/sql": deafSQL(overDatabaseSQL),
	} {
		for idempotent, want := range map[bool]int{false: 1, true: 3} {
			group.Go(func() {
				t.Run(fmt.Sprint(protocol, ", idempotent ", idempotent), func(t *testing.T) {
					var err error
					for slow := patience(1); slow <= slowest; slow *= 3 { // as in ledger.one
						call, count := deaf(t)
						if err = repeats(t, call, count, idempotent, want, slow); err == nil {
							return
						}
					}
					t.Error(err)
				})
			})
		}
	}
	group.Wait()
}

// repeats makes the call by Do. More than it may be done is never forgiven.
func repeats(t *testing.T, call func(context.Context) error, count func() int, idempotent bool, want int, slow patience) error {
	t.Helper()
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Timeout: slow.times(late)}, Base: 1, Most: 1, Idempotent: idempotent}, call)
	await(count, want, slow.times(5*time.Second))
	n := count()
	if n > want {
		t.Errorf("the service has done it %d times: %v", n, err)
	}
	var gave *budget.GaveUpError
	if n != want || !errors.As(err, &gave) || gave.Attempts != want || gave.Class != budget.Unknown {
		return fmt.Errorf("done %d times: %w", n, err)
	}
	return nil
}
