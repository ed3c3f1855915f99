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

// TestBrokenInboxFiles demands that a file whose triggers break a rule behind the store's back is caught by a case.
func TestBrokenInboxFiles(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]string{
		"the note is not kept":         `AFTER INSERT ON tenure_inbox BEGIN DELETE FROM tenure_inbox WHERE consumer = NEW.consumer AND message = NEW.message; END`,
		"every consumer is one":        `AFTER INSERT ON tenure_inbox BEGIN INSERT OR IGNORE INTO tenure_inbox SELECT v.column1, NEW.message, NEW.at FROM (VALUES ('mailer'), ('biller'), ('a'), ('b')) v; END`,
		"its age is not known":         `AFTER INSERT ON tenure_inbox WHEN NEW.at > 0 BEGIN UPDATE tenure_inbox SET at = 0 WHERE consumer = NEW.consumer AND message = NEW.message; END`,
		"what is noted stays for ever": `BEFORE DELETE ON tenure_inbox BEGIN SELECT RAISE(IGNORE); END`,
	} {
		var by []string
		for _, c := range inboxtest.Cases() {
			h := newInboxHarness(t)
			plainExec(t, h.store.Path(), `CREATE TRIGGER twin `+breaks)
			if err := c.Run(t.Context(), h); err != nil {
				by = append(by, c.Name)
			}
		}
		if len(by) == 0 {
			t.Errorf("%s: no case catches it", name)
		}
		t.Logf("%s is caught by %v", name, by)
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
