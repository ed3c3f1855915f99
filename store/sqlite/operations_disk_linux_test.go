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

	"github.com/tenure-go/tenure/operation"
)

// Operations on a disk that fills up: typed, nothing that was told is lost, and the store goes on when there is space again.
func TestOperationsOnADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	if mayMount(t) {
		start(t, "op full disk", job{Path: t.TempDir()}, ownDisks(t)).hear("done")
	}
}

func playOpFullDisk(ctx context.Context, st *stage) error {
	if err := mountDisk(st.job.Path, 8192); err != nil {
		return err
	}
	filler, path := filepath.Join(st.job.Path, "filler"), filepath.Join(st.job.Path, "t.db")
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filler, make([]byte, 6<<20), 0o600); err != nil {
		return err
	}
	submitted, finished, err := workUntil(ctx, s.Operations(), 0)
	if !errors.Is(err, operation.ErrUnavailable) || !errors.Is(err, ErrFull) {
		return fmt.Errorf("on a full disk, after %d: %w", submitted, err)
	}
	if _, err := s.Operations().List(ctx, operation.ListRequest{Limit: 10}); err != nil {
		return err // reading goes on
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	if _, _, err := workUntil(ctx, s.Operations(), submitted+100); err != nil {
		return err
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: path}); err != nil {
		return err
	}
	if err := checkOperations(ctx, s.readDB); err != nil {
		return err
	}
	for id := range finished {
		if got, err := s.Operations().Get(ctx, id); err != nil || got.State != operation.Succeeded {
			return fmt.Errorf("%s was done, and is %v: %w", id, got.State, err)
		}
	}
	return s.Shutdown(ctx)
}

// workUntil submits, claims and completes one operation after the other, up to the one with the number most, or until a call fails. Those that were told to be done are returned.
func workUntil(ctx context.Context, ops *Operations, most int) (submitted int, finished map[string]bool, err error) {
	finished = map[string]bool{}
	for most == 0 || submitted < most {
		req := submission(fmt.Sprint("op/", submitted))
		req.Request = make([]byte, 3000)
		if _, err := ops.Submit(ctx, req); err != nil {
			return submitted, finished, err
		}
		submitted++
		jobs, err := ops.Claim(ctx, claimOf(1))
		if err != nil {
			return submitted, finished, err
		}
		for _, job := range jobs {
			errs, err := ops.Complete(ctx, []operation.Completion{done(job.Ref)})
			if err := errors.Join(append(errs, err)...); err != nil {
				return submitted, finished, err
			}
			finished[job.ID] = true
		}
	}
	return submitted, finished, nil
}

// A write that fails inside COMMIT leaves open what became of each transition: the caller is told so, the store stops, and the same call after it was opened again settles it.
func TestIOErrorInCommitOfOperations(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"submit", "claim", "complete", "cancel"} {
		start(t, "op io error", job{Path: newPath(t), Names: []string{what}}).hear("done")
	}
}

func playOpIOError(ctx context.Context, st *stage) error {
	signal.Ignore(unix.SIGXFSZ)
	what := st.job.Names[0]
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	ops := s.Operations()
	if _, err := ops.Submit(ctx, submission("begun")); err != nil {
		return err
	}
	jobs, err := ops.Claim(ctx, claimOf(1))
	if err != nil {
		return err
	}
	if _, err := ops.Submit(ctx, submission("waiting")); err != nil {
		return err
	}
	call := func() error {
		switch what {
		case "submit":
			_, err := ops.Submit(ctx, submission("new"))
			return err
		case "claim":
			_, err := ops.Claim(ctx, claimOf(1))
			return err
		case "cancel":
			_, err := ops.Cancel(ctx, "waiting", "no more")
			return err
		}
		errs, err := ops.Complete(ctx, []operation.Completion{done(jobs[0].Ref)})
		if len(errs) == 1 && errors.Is(errs[0], operation.ErrStale) { // it was recorded the first time
			errs = nil
		}
		return errors.Join(append(errs, err)...)
	}
	during := (&actor{stage: st, store: s}).logCannotGrow(func() error { err = call(); return nil })
	if during != nil || !errors.Is(err, operation.ErrUnknown) {
		return fmt.Errorf("%s beside an I/O error in COMMIT: %w", what, errors.Join(during, err))
	}
	if err := call(); !errors.Is(err, operation.ErrUnavailable) {
		return fmt.Errorf("%s at a store that has stopped: %w", what, err)
	}
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if s, err = Open(ctx, Config{Path: st.job.Path}); err != nil {
		return err
	}
	ops = s.Operations()
	return errors.Join(call(), checkOperations(ctx, s.readDB), s.Shutdown(ctx))
}
