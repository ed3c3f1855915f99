package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/outbox"
)

// Messages on a disk that fills up: typed, nothing that was told is lost, and the store goes on when there is space again.
func TestMailOnADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	if mayMount(t) {
		start(t, "mail full disk", job{Path: t.TempDir()}, ownDisks(t)).hear("done")
	}
}

func playMailFullDisk(ctx context.Context, st *stage) error {
	if err := mountDisk(st.job.Path, 8192); err != nil {
		return err
	}
	filler, path := filepath.Join(st.job.Path, "filler"), filepath.Join(st.job.Path, "t.db")
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filler, make([]byte, 7<<20), 0o600); err != nil {
		return err
	}
	sent, err := relayUntil(ctx, s.Outbox(), 0, 1<<20)
	if !errors.Is(err, outbox.ErrUnavailable) || !errors.Is(err, ErrFull) {
		return fmt.Errorf("on a full disk, after %d: %w", sent, err)
	}
	if _, err := s.Outbox().List(ctx, outbox.ListRequest{Limit: 10}); err != nil {
		return err // reading goes on
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	if sent, err = relayUntil(ctx, s.Outbox(), sent, sent+20); err != nil {
		return err
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: path}); err != nil {
		return err
	}
	for n := range sent {
		if i, err := s.Outbox().Get(ctx, mailID(n)); err != nil || i.State != outbox.Delivered {
			return fmt.Errorf("message %d of %d that were delivered is %v: %w", n, sent, i.State, err)
		}
	}
	return errors.Join(checkMail(ctx, s.readDB), s.Shutdown(ctx))
}

// relayUntil appends and delivers one after the other, from the one with that number, and returns the number of the first that was not told to be delivered.
func relayUntil(ctx context.Context, mail *Outbox, n, most int) (int, error) {
	for ; n < most; n++ {
		m := letterTo(n, "key")
		m.Payload = make([]byte, 16<<10)
		if _, err := mail.Append(ctx, []outbox.Message{m}); err != nil {
			return n, err
		}
		got, err := mail.Claim(ctx, mailClaim(n, 1))
		if err != nil {
			return n, err
		}
		if len(got.Deliveries) == 0 { // its verdict found no space: its claim, of the same id, goes on
			i, err := mail.Get(ctx, m.ID)
			if err != nil {
				return n, err
			}
			got.Deliveries = []outbox.Delivery{{Position: i.Position}}
		}
		done, err := mail.Settle(ctx, published(got))
		if err == nil && done.Applied != 1 {
			err = fmt.Errorf("message %d: %+v", n, done)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// A write that fails inside COMMIT leaves open what became of each call: the caller is told so, the store stops, and the same call after it was opened again settles it.
func TestIOErrorInCommitOfMail(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"append", "claim", "settle"} {
		start(t, "mail io error", job{Path: newPath(t), Names: []string{what}}).hear("done")
	}
}

func playMailIOError(ctx context.Context, st *stage) error {
	signal.Ignore(unix.SIGXFSZ)
	what := st.job.Names[0]
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	if _, err := s.Outbox().Append(ctx, []outbox.Message{letterTo(1, "key"), letterTo(2, "")}); err != nil {
		return err
	}
	got, err := s.Outbox().Claim(ctx, mailClaim(1, 1))
	if err != nil {
		return err
	}
	call := func() error {
		var err error
		switch mail := s.Outbox(); what {
		case "append":
			_, err = mail.Append(ctx, []outbox.Message{letterTo(3, "key")})
		case "claim":
			_, err = mail.Claim(ctx, mailClaim(2, 1))
		case "settle":
			_, err = mail.Settle(ctx, published(got))
		}
		return err
	}
	during := (&actor{stage: st, store: s}).logCannotGrow(func() error { err = call(); return nil })
	if during != nil || !errors.Is(err, outbox.ErrUnknown) {
		return fmt.Errorf("%s beside an I/O error in COMMIT: %w", what, errors.Join(during, err))
	}
	if err := call(); !errors.Is(err, outbox.ErrUnavailable) {
		return fmt.Errorf("%s at a store that has stopped: %w", what, err)
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: st.job.Path}); err != nil {
		return err
	}
	return errors.Join(call(), checkMail(ctx, s.readDB), s.Shutdown(ctx))
}
