package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/hold"
)

// Holds on a disk that fills up: typed, nothing that was told is lost or sold twice, and the store goes on when there is space again.
func TestHoldsOnADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	if mayMount(t) {
		start(t, "hold full disk", job{Path: t.TempDir()}, ownDisks(t)).hear("done")
	}
}

func playHoldFullDisk(ctx context.Context, st *stage) error {
	if err := mountDisk(st.job.Path, 8192); err != nil {
		return err
	}
	filler, path := filepath.Join(st.job.Path, "filler"), filepath.Join(st.job.Path, "t.db")
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	const most = 1 << 20
	if err := s.Holds().Stock(ctx, []hold.Item{{Name: "item", Quantity: most}}); err != nil {
		return err
	}
	if err := os.WriteFile(filler, make([]byte, 7<<20), 0o600); err != nil {
		return err
	}
	sold, err := sellUntil(ctx, s.Holds(), 0, most)
	if !errors.Is(err, hold.ErrUnavailable) || !errors.Is(err, ErrFull) {
		return fmt.Errorf("on a full disk, after %d: %w", sold, err)
	}
	if _, err := s.Holds().List(ctx, hold.ListRequest{Limit: 10}); err != nil {
		return err // reading goes on
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	sold, err = sellUntil(ctx, s.Holds(), sold, sold+100)
	if err != nil {
		return err
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: path}); err != nil {
		return err
	}
	items, err := s.Holds().Items(ctx, "", "", 1)
	if err != nil || items[0].Sold != int64(sold) || items[0].Held != 0 {
		return fmt.Errorf("%d were sold, the file says %+v: %w", sold, items, err)
	}
	return errors.Join(checkHolds(ctx, s.readDB), s.Shutdown(ctx))
}

// sellUntil sells one after the other, from the one with that number, and returns the number of the first that was not told to be sold.
func sellUntil(ctx context.Context, holds *Holds, n, most int) (int, error) {
	for ; n < most; n++ {
		if err := sellOne(ctx, holds, n, "item"); err != nil {
			return n, err
		}
	}
	return n, nil
}

// A write that fails inside COMMIT leaves open what became of each call: the caller is told so, the store stops, and the same call after it was opened again settles it.
func TestIOErrorInCommitOfHolds(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"stock", "place", "extend", "confirm", "release"} {
		start(t, "hold io error", job{Path: newPath(t), Names: []string{what}}).hear("done")
	}
}

func playHoldIOError(ctx context.Context, st *stage) error {
	signal.Ignore(unix.SIGXFSZ)
	what := st.job.Names[0]
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	if err := s.Holds().Stock(ctx, []hold.Item{{Name: "a", Quantity: 1}, {Name: "b", Quantity: 1}}); err != nil {
		return err
	}
	if _, err := s.Holds().Place(ctx, placement(1, time.Hour, "a")); err != nil {
		return err
	}
	call := func() error {
		var err error
		switch holds := s.Holds(); what {
		case "stock":
			err = holds.Stock(ctx, []hold.Item{{Name: "b", Quantity: 2}})
		case "place":
			_, err = holds.Place(ctx, placement(2, time.Hour, "b"))
		case "extend":
			_, err = holds.Extend(ctx, holdID(1), "ann", 2*time.Hour)
		case "confirm":
			_, err = holds.Confirm(ctx, payment(1))
		case "release":
			_, err = holds.Release(ctx, holdID(1), "ann")
		}
		return err
	}
	during := (&actor{stage: st, store: s}).logCannotGrow(func() error { err = call(); return nil })
	if during != nil || !errors.Is(err, hold.ErrUnknown) {
		return fmt.Errorf("%s beside an I/O error in COMMIT: %w", what, errors.Join(during, err))
	}
	if err := call(); !errors.Is(err, hold.ErrUnavailable) {
		return fmt.Errorf("%s at a store that has stopped: %w", what, err)
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: st.job.Path}); err != nil {
		return err
	}
	return errors.Join(call(), checkHolds(ctx, s.readDB), s.Shutdown(ctx))
}
