package inboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

func pruneCases() []Case[Harness] {
	return []Case[Harness]{
		named("B52-what-comes-later-than-the-window-is-counted-and-not-done", lateCounted),
		named("B52-what-is-older-than-asked-is-forgotten-and-nothing-else", oldForgotten),
		named("nothing-is-forgotten-within-the-window", windowKept),
		named("forgetting-stops-at-its-limit", limitKept),
	}
}

func lateCounted(s *stage[Harness]) {
	s.first(mailer, "a")
	was := s.h.Store().Stats()
	s.advance(Window - 10*time.Second)
	r := s.repeated(mailer, "a")
	s.want(!r.Late && near(r.Age, Window-10*time.Second), "within the window: %+v", r)
	s.counted(was, 0, 1, 0)
	s.advance(20 * time.Second)
	for range 2 {
		r = s.repeated(mailer, "a")
		s.want(r.Late && near(r.Age, Window+10*time.Second), "later than the window: %+v", r)
	}
	s.counted(was, 0, 3, 2)
}

func oldForgotten(s *stage[Harness]) {
	s.first(mailer, "a")
	s.advance(Window)
	s.first(mailer, "b")
	s.advance(Window)
	s.first(mailer, "c")
	s.prune(3*Window, 10, 0)
	s.prune(Window+Window/2, 10, 1)
	s.first(mailer, "a") // as new
	s.repeated(mailer, "b")
	s.repeated(mailer, "c")
	s.advance(time.Minute)
	s.prune(Window, 10, 1)
	s.first(mailer, "b")
	s.repeated(mailer, "a")
	s.repeated(mailer, "c")
}

func windowKept(s *stage[Harness]) {
	s.first(mailer, "a")
	s.advance(Window / 2)
	for what, p := range map[string]struct {
		keep  time.Duration
		limit int
	}{
		"no time": {0, 10}, "less than the window": {Window - 1, 10}, "less than no time": {-Window, 10}, "no limit": {Window, 0}, "a negative limit": {Window, -1}, "too great a limit": {Window, inbox.MaxPrune + 1},
	} {
		n, err := s.h.Store().Prune(s.ctx, p.keep, p.limit)
		s.want(errors.Is(err, inbox.ErrInvalid) && n == 0, "pruning with %s: %d, %v", what, n, err)
	}
	s.prune(Window, inbox.MaxPrune, 0)
	s.repeated(mailer, "a")
}

func limitKept(s *stage[Harness]) {
	for i := range 5 {
		s.first(mailer, fmt.Sprint("m", i))
	}
	s.advance(2 * Window)
	s.prune(Window, 2, 2)
	s.prune(Window, 2, 2)
	s.prune(Window, 2, 1)
	s.prune(Window, 2, 0)
}
