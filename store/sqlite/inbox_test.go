package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/inbox/inboxtest"
)

// TestInboxConformance is in transactions of a consumer's own, prepared and not. Those of inboxtest.LevelCases are for stores in which transactions go on beside each other:
// here nobody else writes meanwhile.
func TestInboxConformance(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		for _, c := range inboxtest.Cases() {
			name := c.Name
			if prepared {
				name += "/prepared"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := newInboxHarness(t)
				h.prepared = prepared
				if err := c.Run(t.Context(), h); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestBrokenInboxFiles demands that a file whose triggers break a rule behind the store's back is caught by the case that is named for the rule.
func TestBrokenInboxFiles(t *testing.T) {
	t.Parallel()
	const this = ` WHERE consumer = NEW.consumer AND message = NEW.message; END`
	for name, breaks := range map[string]string{
		"B51-what-is-delivered-twice-is-done-once":                     `AFTER INSERT ON tenure_inbox BEGIN DELETE FROM tenure_inbox` + this,
		"consumers-are-apart":                                          `BEFORE INSERT ON tenure_inbox WHEN EXISTS (SELECT 1 FROM tenure_inbox WHERE message = NEW.message) BEGIN SELECT RAISE(IGNORE); END`,
		"B52-what-comes-later-than-the-window-is-counted-and-not-done": `AFTER INSERT ON tenure_inbox BEGIN UPDATE tenure_inbox SET at = at + 86400000000000` + this,
		"B52-what-is-older-than-asked-is-forgotten-and-nothing-else":   `BEFORE DELETE ON tenure_inbox BEGIN SELECT RAISE(IGNORE); END`,
		"forgetting-stops-at-its-limit":                                `AFTER DELETE ON tenure_inbox BEGIN DELETE FROM tenure_inbox; END`,
	} {
		h := newInboxHarness(t)
		plainExec(t, h.store.Path(), `CREATE TRIGGER twin `+breaks)
		ran := false
		for _, c := range inboxtest.Cases() {
			if c.Name != name {
				continue
			}
			ran = true
			if err := c.Run(t.Context(), h); err == nil {
				t.Errorf("the broken file is not caught by %s", name)
			} else {
				t.Logf("%s: %.200s", name, err.Error())
			}
		}
		if !ran {
			t.Errorf("no case %s", name)
		}
	}
}

// TestBrokenOnce demands that naive forms of Once are caught by the case that is named for what they break.
func TestBrokenOnce(t *testing.T) {
	t.Parallel()
	for name, twin := range map[string]func(ctx context.Context, i *inboxTx, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error){
		// It notes and does, without a savepoint around both.
		"work-that-fails-leaves-no-note-though-the-caller-commits": func(ctx context.Context, i *inboxTx, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) {
			told, err := i.h.in.Once(ctx, i.in, consumer, messageID, func(context.Context) error { return nil })
			if err != nil || told.Repeated {
				return told, err
			}
			return told, fn(ctx)
		},
		// It notes in a transaction of its own, once the work is done.
		"what-was-rolled-back-is-done-later": func(ctx context.Context, i *inboxTx, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) {
			i.noted = append(i.noted, [2]string{consumer, messageID})
			return inbox.Result{}, fn(ctx)
		},
	} {
		h := newInboxHarness(t)
		h.once = twin
		for _, c := range inboxtest.Cases() {
			if c.Name == name {
				if err := c.Run(t.Context(), h); err == nil {
					t.Errorf("the broken form is not caught by %s", name)
				} else {
					t.Logf("%s: %.200s", name, err.Error())
				}
			}
		}
	}
}

// In a fenced transaction a message is noted, and done, if and only if it commits.
func TestOnceInFenced(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	in, err := w.s.Inbox(inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	once := func(fail error) (told inbox.Result, err error) {
		err = w.s.Fenced(t.Context(), w.claim, func(ctx context.Context, tx *Tx) error {
			told, err = in.Once(ctx, tx, "seller", "message", func(ctx context.Context) error {
				_, err := tx.ExecContext(ctx, `UPDATE stock SET n = n + 1`)
				return err
			})
			return errors.Join(err, fail)
		})
		return told, err
	}
	if _, err := once(failed); !errors.Is(err, failed) || w.stock() != "1" {
		t.Errorf("rolled back: %v, %s in stock", err, w.stock())
	}
	for n, want := range []bool{false, true, true} {
		if told, err := once(nil); err != nil || told.Repeated != want || w.stock() != "2" {
			t.Errorf("delivery %d: %+v, %v, %s in stock", n, told, err, w.stock())
		}
	}
	if _, err := w.s.Inbox(inbox.Options{Window: 1}); !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("a window of nothing: %v", err)
	}
	other, err := openPath(t, newPath(t)).Inbox(inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Once(t.Context(), w.begin(), "seller", "message", func(context.Context) error { return nil }); !errors.Is(err, errOtherAuthority) {
		t.Errorf("in another file: %v", err)
	}
}
