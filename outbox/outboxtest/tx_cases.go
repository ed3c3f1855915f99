package outboxtest

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func transactionCases() []Case[TransactionHarness] {
	return []Case[TransactionHarness]{
		named("F30-what-was-rolled-back-was-never-there", rolledBack),
		named("what-was-committed-is-there", committed),
		named("a-mismatch-in-a-transaction-leaves-nothing-of-it", mismatchInside),
	}
}

func openTransactionCases() []Case[TransactionHarness] {
	return []Case[TransactionHarness]{
		named("an-open-transaction-shows-nothing-and-holds-up-nobody", openShowsNothing),
		named("B26-what-commits-late-is-not-passed-over", lateCommit),
		named("those-who-append-to-one-key-wait-for-each-other", appendersWait),
		named("B31-a-transaction-of-ten-minutes-holds-up-no-other-key", tenMinutes),
	}
}

// transaction is a caller's transaction in a case.
type transaction struct {
	s        *stage
	tx       Tx
	began    int
	messages []outbox.Message
	ids      []fence.ID
}

func (s *stage) begin(h TransactionHarness) *transaction {
	t := &transaction{s: s}
	if s.failed() {
		return t
	}
	tx, err := h.Begin(s.ctx)
	if err != nil {
		s.fail("beginning a transaction: %w", err)
	}
	t.tx, t.began = tx, s.store.step()
	return t
}

// append must be done.
func (t *transaction) append(messages ...outbox.Message) {
	s := t.s
	if s.failed() {
		return
	}
	t.s.store.opens(messages, true)
	ids, err := t.tx.Append(s.ctx, messages)
	if err != nil {
		s.fail("appending %q in a transaction: %w", names(messages), err)
	}
	s.want(len(ids) == len(messages), "appending %d messages in a transaction told %d ids", len(messages), len(ids))
	t.messages, t.ids = append(t.messages, messages...), append(t.ids, ids...)
}

func (t *transaction) commit() {
	s := t.s
	if t.tx == nil {
		return
	}
	s.store.opens(t.messages, false)
	s.store.asks(t.messages)
	if err := t.tx.Commit(s.ctx); err != nil {
		s.fail("committing: %w", err)
		return
	}
	if !s.failed() {
		s.store.are(t.began, t.messages, t.ids)
	}
}

func (t *transaction) rollback() {
	if t.tx == nil {
		return
	}
	if err := t.tx.Rollback(t.s.ctx); err != nil {
		t.s.fail("rolling back: %w", err)
	}
	t.s.store.opens(t.messages, false)
}

// opens notes that messages are in a transaction that has not ended, or no longer.
func (w *watch) opens(messages []outbox.Message, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range messages {
		if id := messages[i].ID; open && w.known[id] == nil {
			w.open[id] = true
		} else {
			delete(w.open, id)
		}
	}
}

func rolledBack(s *stage, h TransactionHarness) {
	s.append(notes("a")...)
	t := s.begin(h)
	t.append(note("b", mail), ordered("c", mail, "k"))
	t.append(notes("d")...)
	t.rollback()
	s.append(ordered("e", mail, "k"))
	s.take("x", "a", "e")
	for _, name := range []string{"b", "c", "d"} {
		s.gone(name)
	}
	s.list(outbox.ListRequest{}, "a", "e")
	s.append(note("b", bill), ordered("c", mail, "k")) // the ids are free
	s.publish("x", "a", "e")
	s.take("y", "b", "c")
}

func committed(s *stage, h TransactionHarness) {
	t := s.begin(h)
	t.append(ordered("a", mail, "k"), ordered("b", mail, "k"))
	t.append(ordered("c", mail, "k"), note("d", bill))
	t.append(ordered("b", mail, "k")) // known in this transaction
	t.commit()
	t = s.begin(h)
	t.append(note("d", bill)) // known
	t.append(notes("e")...)
	t.commit()
	s.take("x", "a", "b", "c", "d", "e")
	s.publish("x", "a", "b", "c", "d", "e")
	t = s.begin(h)
	t.append(note("d", bill)) // delivered
	t.commit()
	s.none("y")
}

func mismatchInside(s *stage, h TransactionHarness) {
	s.append(notes("a")...)
	for i, messages := range [][]outbox.Message{{note("b", mail), note("a", bill)}, {note("b", bill)}} {
		t := s.begin(h)
		if i == 1 {
			t.append(notes("b")...) // known in this transaction
		}
		if s.failed() {
			return
		}
		_, err := t.tx.Append(s.ctx, messages)
		s.kind(err, outbox.ErrMismatch, "appending another message under a known id in a transaction")
		t.rollback()
		s.gone("b")
	}
	t := s.begin(h)
	if s.failed() {
		return
	}
	_, err := t.tx.Append(s.ctx, []outbox.Message{{Topic: "", Payload: []byte("x")}})
	s.kind(err, outbox.ErrInvalid, "appending a message without a topic in a transaction")
	t.rollback()
	s.take("x", "a")
}

// appendersWait lets another append to a key while a transaction that has appended to it is open.
func appendersWait(s *stage, h TransactionHarness) {
	for _, commits := range []bool{true, false} {
		key := fmt.Sprint("key ", commits)
		name := func(n string) string { return fmt.Sprint(n, commits) }
		t := s.begin(h)
		t.append(ordered(name("1"), mail, key), ordered(name("0"), mail, "another"+key))
		second := make(chan error, 1)
		go func() {
			_, err := s.store.Append(s.ctx, []outbox.Message{ordered(name("2"), mail, key)})
			second <- err
		}()
		select { // long enough that one which does not wait has answered
		case err := <-second:
			s.fail("a transaction that has appended to the key is open, and another append to it is answered: %v", err)
			second <- err
		case <-time.After(100 * time.Millisecond):
		}
		s.append(ordered(name("3"), mail, "other"+key)) // who appends to another key does not wait
		if commits {
			t.commit()
		} else {
			t.rollback()
		}
		select {
		case err := <-second:
			s.want(err == nil, "an append to a key, the transaction before it having ended (committed: %v): %v", commits, err)
		case <-time.After(patience):
			s.fail("a transaction has ended, and an append to its key waits")
		}
		if commits {
			s.eventually(name("1"), name("0"), name("2"), name("3"))
		} else {
			s.eventually(name("2"), name("3"))
		}
	}
}

func openShowsNothing(s *stage, h TransactionHarness) {
	t := s.begin(h)
	t.append(note("a", mail), ordered("b", mail, "k"))
	s.gone("a")
	s.list(outbox.ListRequest{})
	s.append(note("c", mail), ordered("d", mail, "l"))
	s.take("x", "c", "d")
	s.publish("x", "c", "d")
	s.topics()
	t.commit()
	s.eventually("a", "b")
}

// eventually must hand out these within some seconds: a store may look for what commits late less often than for what is new.
func (s *stage) eventually(want ...string) {
	const looks = 20
	missing := map[string]bool{}
	for _, name := range want {
		missing[name] = true
	}
	for i := 0; i < looks && !s.failed() && len(missing) > 0; i++ {
		claim := fmt.Sprint("e", i, " ", want[0])
		for _, name := range delivered(s.claim(request(claim))) {
			s.want(missing[name], "%q was handed out", name)
			delete(missing, name)
			s.publish(claim, name)
		}
		if len(missing) > 0 {
			s.advance(ttl / 10)
		}
	}
	s.want(len(missing) == 0, "after %d claims these were not handed out: %v", looks, missing)
}

func lateCommit(s *stage, h TransactionHarness) {
	s.append(notes("0")...)
	a := s.begin(h)
	a.append(notes("a", "b")...)
	b := s.begin(h)
	b.append(notes("c")...)
	b.commit()
	s.take("x", "0", "c")
	s.publish("x", "0", "c")
	s.none("y")
	a.commit()
	s.eventually("a", "b")
	s.at("a", outbox.Delivered, 1)
}

func tenMinutes(s *stage, h TransactionHarness) {
	s.append(ordered("1", mail, "A"), ordered("2", mail, "B"))
	long := s.begin(h)
	long.append(ordered("3", mail, "A"), ordered("4", mail, "C"))
	s.advance(ttl) // nothing depends on how long it is open: what would, would by now
	for i := range 3 {
		name := fmt.Sprint("b", i)
		s.append(ordered(name, mail, "B"), note("u"+name, mail))
		claim := fmt.Sprint("x", i)
		if i == 0 {
			s.take(claim, "1", "2", name, "u"+name)
			s.publish(claim, "1", "2", name, "u"+name)
		} else {
			s.take(claim, name, "u"+name)
			s.publish(claim, name, "u"+name)
		}
		s.advance(200 * ttl / 10)
	}
	long.commit()
	s.eventually("3", "4")
}
