package inboxtest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/inbox/inboxtest"
)

// frail is an inbox in memory with a table of effects, and transactions that wait for each other's notes. It has one fault at most; each fault is one place where it asks f.is.
type frail struct {
	fault string

	mu      sync.Mutex
	ended   *sync.Cond // some transaction has ended
	skew    time.Duration
	start   time.Time
	notes   map[string]*noted
	effects []string
	stats   inbox.Stats
	commits int
}

type noted struct {
	at     time.Duration
	by     *frailTx // that has not ended; nil: committed
	commit int      // which commit it came with
}

var errAgain = errors.New("begin again")

func newFrail(fault string) *frail {
	f := &frail{fault: fault, start: time.Now(), notes: map[string]*noted{}}
	f.ended = sync.NewCond(&f.mu)
	return f
}

func (f *frail) is(fault string) bool { return f.fault == fault }

func (f *frail) now() time.Duration { return time.Since(f.start) + f.skew }

func (f *frail) Store() inbox.Store          { return f }
func (f *frail) Levels() []string            { return []string{"read committed", "repeatable read"} }
func (f *frail) Check(context.Context) error { return nil }
func (f *frail) Again(err error) bool        { return errors.Is(err, errAgain) }

func (f *frail) Begin(_ context.Context, level string) (inboxtest.Tx, error) {
	return &frailTx{f: f, repeatable: level == f.Levels()[1]}, nil
}

func (f *frail) Effects(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.effects...), nil
}

func (f *frail) Advance(_ context.Context, d time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skew += d
	return nil
}

func (f *frail) Stats() inbox.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

func (f *frail) Prune(_ context.Context, keep time.Duration, limit int) (int, error) {
	o := inbox.Options{Window: inboxtest.Window}
	if err := o.CheckPrune(keep, limit); err != nil && !f.is("any prune is done") {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for key, note := range f.notes {
		if note.by != nil && !f.is("prune takes what is being done") || f.now()-note.at < keep && !f.is("prune takes what is fresh") {
			continue
		}
		if n == limit && !f.is("prune knows no limit") {
			break
		}
		delete(f.notes, key)
		n++
	}
	return n, nil
}

// frailTx is a transaction.
type frailTx struct {
	f          *frail
	repeatable bool
	looked     bool
	snapshot   int // commits when it first looked
	effects    []string
	notes      []string
}

// Look takes the snapshot.
func (t *frailTx) Look(context.Context) error {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if !t.looked {
		t.looked, t.snapshot = true, t.f.commits
	}
	return nil
}

func (t *frailTx) Effect(_ context.Context, text string) error {
	t.effects = append(t.effects, text)
	return nil
}

// key is what a note is known by.
func (f *frail) key(consumer, id string) string {
	switch {
	case f.is("the consumer is ignored"):
		return id
	case f.is("consumer and id are put together"):
		return consumer + id
	case f.is("names know no case"):
		return strings.ToLower(consumer + "\x00" + id)
	}
	return consumer + "\x00" + id
}

// note notes the message, or says that it was noted.
func (t *frailTx) note(key string) (inbox.Result, error) {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		n := f.notes[key]
		if n == nil {
			break
		}
		if n.by != nil && n.by != t {
			if f.is("the second does it too") {
				f.stats.First++
				return inbox.Result{}, nil
			}
			if !f.is("the second does not wait") {
				f.ended.Wait()
				continue
			}
		}
		if t.repeatable && n.by == nil && n.commit > t.snapshot && t.looked {
			if f.is("a snapshot does it again") {
				return inbox.Result{}, nil
			}
			return inbox.Result{}, errAgain
		}
		r := inbox.Result{Repeated: true, Age: f.now() - n.at}
		r.Late = r.Age > inboxtest.Window && !f.is("what is late is not told")
		if !f.is("what is repeated is not counted") {
			f.stats.Repeated++
		}
		if r.Late && !f.is("what is late is not counted") {
			f.stats.Late++
		}
		if f.is("a redelivery renews the note") {
			n.at = f.now()
		}
		if f.is("the age is not told") {
			r.Age = 0
		}
		return r, nil
	}
	f.stats.First++
	f.notes[key] = &noted{at: f.now(), by: t}
	t.notes = append(t.notes, key)
	if f.is("the note is of its own transaction") {
		f.notes[key].by = nil
	}
	if f.is("the note is written after the transaction") {
		delete(f.notes, key)
	}
	return inbox.Result{}, nil
}

func (t *frailTx) Once(ctx context.Context, consumer, id string, fn func(context.Context) error) (r inbox.Result, err error) {
	f := t.f
	if err := inbox.CheckOnce(consumer, id); err != nil && !f.is("names are not checked") {
		return inbox.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return inbox.Result{}, &inbox.UnavailableError{Op: "once", Err: err}
	}
	if err := t.Look(ctx); err != nil {
		return inbox.Result{}, err
	}
	key := f.key(consumer, id)
	if r, err = t.note(key); err != nil || r.Repeated {
		if f.is("what is repeated is done") && err == nil {
			err = fn(ctx)
		}
		return r, err
	}
	took := false
	defer func() {
		if !took {
			if !f.is("the note is kept when the work panics") {
				t.forget(key)
			}
			if f.is("a panic is swallowed") {
				_ = recover()
			}
		}
	}()
	if err = fn(ctx); err != nil && f.is("an error is not returned as it is") {
		err = errors.New(err.Error())
	}
	took = true
	if err != nil && !f.is("the note is kept when the work fails") {
		t.forget(key)
	}
	return r, err
}

// forget takes a note back.
func (t *frailTx) forget(key string) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	delete(t.f.notes, key)
	t.f.ended.Broadcast()
}

func (t *frailTx) Commit(context.Context) error {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits++
	f.effects = append(f.effects, t.effects...)
	for _, key := range t.notes {
		if f.is("the note is written after the transaction") {
			f.notes[key] = &noted{at: f.now()}
		}
		if n := f.notes[key]; n != nil && (n.by == t || n.by == nil) {
			n.by, n.commit = nil, f.commits
		}
	}
	f.ended.Broadcast()
	return nil
}

func (t *frailTx) Rollback(context.Context) error {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.is("the effect stays when it is rolled back") {
		f.effects = append(f.effects, t.effects...)
	}
	for _, key := range t.notes {
		if n := f.notes[key]; n != nil && n.by == t {
			delete(f.notes, key)
		}
	}
	f.ended.Broadcast()
	return nil
}
