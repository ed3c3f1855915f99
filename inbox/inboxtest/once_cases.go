package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/inbox"
)

func onceCases() []Case[Harness] {
	return []Case[Harness]{
		named("B51-what-is-delivered-twice-is-done-once", doneOnce),
		named("what-was-rolled-back-is-done-later", rolledBack),
		named("work-that-fails-leaves-no-note-though-the-caller-commits", failsAndCommits),
		named("work-that-panics-leaves-no-note-though-the-caller-commits", panicsAndCommits),
		named("consumers-are-apart", consumersApart),
		named("one-transaction-does-several-messages-each-once", severalInOne),
		named("names-are-checked-and-kept-as-they-are", namesKept),
	}
}

func doneOnce(s *stage[Harness]) {
	was := s.h.Store().Stats()
	s.first(mailer, "a")
	for range 3 {
		s.repeated(mailer, "a")
	}
	s.first(mailer, "b")
	s.advance(Window / 2)
	r := s.repeated(mailer, "a")
	s.want(near(r.Age, Window/2) && !r.Late, "repeated after %v: %+v", Window/2, r)
	s.counted(was, 2, 4, 0)
}

func rolledBack(s *stage[Harness]) {
	for range 2 {
		tx := s.begin()
		if s.failed() {
			return
		}
		r, err := once(s.ctx, tx, mailer, "a")
		s.want(err == nil && !r.Repeated, "in a transaction that will be rolled back: %+v, %v", r, err)
		s.end(tx, false)
		s.effects()
	}
	s.first(mailer, "a")
	s.repeated(mailer, "a")
	tx := s.begin()
	if s.failed() {
		return
	}
	r, err := once(s.ctx, tx, mailer, "a")
	s.want(err == nil && r.Repeated, "repeated in a transaction that will be rolled back: %+v, %v", r, err)
	s.end(tx, false)
	s.repeated(mailer, "a")
}

func failsAndCommits(s *stage[Harness]) {
	tx := s.begin()
	if s.failed() {
		return
	}
	spoilt := errors.New("the work has failed")
	_, err := tx.Once(s.ctx, mailer, "a", func(context.Context) error { return fmt.Errorf("of a: %w", spoilt) })
	s.want(errors.Is(err, spoilt), "work that fails: %v; want its own error", err)
	_, err = once(s.ctx, tx, mailer, "b")
	s.want(err == nil, "after work that failed: %v", err)
	s.end(tx, true)
	s.done[effectOf(mailer, "b")]++
	s.first(mailer, "a")
	s.repeated(mailer, "a")
	s.repeated(mailer, "b")
}

// panics reports whether call panicked with this.
func panics(with any, call func()) (so bool) {
	defer func() { so = recover() == with }()
	call()
	return false
}

func panicsAndCommits(s *stage[Harness]) {
	tx := s.begin()
	if s.failed() {
		return
	}
	_, err := once(s.ctx, tx, mailer, "b")
	s.want(err == nil, "before work that panics: %v", err)
	so := panics("spoilt", func() {
		_, _ = tx.Once(s.ctx, mailer, "a", func(context.Context) error { panic("spoilt") })
	})
	s.want(so, "work panicked, and its caller did not")
	s.end(tx, true)
	s.done[effectOf(mailer, "b")]++
	s.first(mailer, "a")
	s.repeated(mailer, "b")
}

func consumersApart(s *stage[Harness]) {
	s.first(mailer, "a")
	s.first(ledger, "a")
	s.repeated(ledger, "a")
	s.first(ledger, "b")
	s.first(mailer, "b")
	s.first("Mailer", "a")
	s.first(mailer, "A")
	s.first(mailer+"a", "b") // what is put together is not one
	s.first(mailer, "ab")
}

func severalInOne(s *stage[Harness]) {
	s.first(mailer, "b")
	tx := s.begin()
	if s.failed() {
		return
	}
	for i, m := range []struct {
		id       string
		repeated bool
	}{{"a", false}, {"b", true}, {"c", false}, {"a", true}} {
		r, err := once(s.ctx, tx, mailer, m.id)
		s.want(err == nil && r.Repeated == m.repeated, "message %d of one transaction, %q: %+v, %v", i, m.id, r, err)
	}
	s.end(tx, true)
	s.done[effectOf(mailer, "a")]++
	s.done[effectOf(mailer, "c")]++
	for _, id := range []string{"a", "b", "c"} {
		s.repeated(mailer, id)
	}
}

func namesKept(s *stage[Harness]) {
	was := s.h.Store().Stats()
	refused := func(what, consumer, id string) {
		tx := s.begin()
		if s.failed() {
			return
		}
		_, err := tx.Once(s.ctx, consumer, id, func(context.Context) error {
			s.fail("with %s the work was done", what)
			return nil
		})
		s.want(errors.Is(err, inbox.ErrInvalid), "with %s: %v; want an error that matches %q", what, err, inbox.ErrInvalid)
		s.end(tx, false)
	}
	for what, text := range noText(inbox.MaxConsumer) {
		refused("as consumer "+what, text, "a")
	}
	for what, text := range noText(inbox.MaxMessageID) {
		refused("as message "+what, mailer, text)
	}
	s.counted(was, 0, 0, 0)
	consumer, id := strings.Repeat("ü", inbox.MaxConsumer/2), strings.Repeat("ß", inbox.MaxMessageID/2)
	s.first(consumer, id)
	s.repeated(consumer, id)
	for _, id := range []string{"e\u0301", "\u00e9", " a", "a ", "a'b", `a\b`, "a%", "𝄞"} {
		s.first(mailer, id)
		s.repeated(mailer, id)
	}
}
