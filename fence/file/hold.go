package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/fence"
)

// callerError is what the caller's own function returned: it leaves the package as it came.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

// run runs one operation under the lock, on a state that is settled.
func (f *File) run(ctx context.Context, op string, fn func(*held) error) error {
	h, err := f.hold(ctx)
	if err != nil {
		return f.describe(op, err)
	}
	defer h.release()
	if err = h.load(); err == nil {
		err = fn(h)
	}
	if own, ok := errors.AsType[*callerError](err); ok {
		return own.err
	}
	if errors.Is(err, fence.ErrRefused) || errors.Is(err, fence.ErrForeign) || errors.Is(err, fence.ErrInvalid) {
		return err
	}
	return f.describe(op, err)
}

// hold waits for the lock until ctx ends.
func (f *File) hold(ctx context.Context) (*held, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, f.busy(ctx)
	}
	h := &held{f: f}
	if err := h.inTime(ctx); err != nil {
		<-f.turn
		return nil, err
	}
	if err := h.open(); err != nil {
		<-f.turn
		return nil, err
	}
	had, err := f.p.try(h.side)
	if err == nil && !had {
		if had, err = f.p.wait(ctx, h.side); err == nil && !had {
			err = f.busy(ctx)
		}
	}
	if err != nil {
		h.drop()
		if lacksLocks(err) {
			return nil, fault(ErrNoLocks, "nothing was changed; use another file system", err)
		}
		return nil, err
	}
	if err := errors.Join(h.inTime(ctx), h.same()); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// sign says whose operation it is, for error texts alone: a full disk stops nobody.
func (h *held) sign() {
	_, _ = h.side.WriteAt(fmt.Appendf(nil, "%-*d\n", signLength-1, os.Getpid()), signAt)
}

// inTime refuses to go on for a caller that does not wait any more.
func (h *held) inTime(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault(ErrBusy, "its context ended first; the content was not changed", context.Cause(ctx))
}

// busy says who had the lock last.
func (f *File) busy(ctx context.Context) error {
	detail := "the content was not changed; try again"
	if pid := f.signature(); pid > 0 {
		detail = fmt.Sprintf("pid %d had it last%s; %s", pid, processState(pid), detail)
	}
	return fault(ErrBusy, detail, context.Cause(ctx))
}

func (f *File) signature() int {
	side, err := os.Open(f.path + sideSuffix)
	if err != nil {
		return 0
	}
	defer func() { _ = side.Close() }() // it was only read
	raw := make([]byte, signLength)
	if _, err := side.ReadAt(raw, signAt); err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0
	}
	return pid
}

// open opens the side file for one operation: locks belong to an open file.
func (h *held) open() error {
	side, err := h.f.openPlain(h.f.path+sideSuffix, os.O_RDWR|noFollow)
	if errors.Is(err, fs.ErrNotExist) && h.f.side != nil {
		return fault(ErrReplaced, "it is gone; nothing was changed; find out who removed it: with it the mark is lost", err)
	}
	h.side = side
	return err
}

// same makes sure that the file under the lock is the one that the path leads to, and that this File has always used. Two who had
// locked two different files would not exclude each other.
func (h *held) same() error {
	f := h.f
	locked, err := h.side.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(f.path + sideSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(named, locked) || f.side != nil && !os.SameFile(f.side, locked) {
		return fault(ErrReplaced, "nothing was changed; find out who replaced it: the mark may have gone back with it", nil)
	}
	return nil
}

// release lets go of the lock and the turn. The lock is given up by itself first: a child that this process is just starting has a copy of
// the open file until it has become the other program, and would keep it for that moment.
func (h *held) release() {
	_ = h.f.p.unlock(h.side, lockMain) // closing does it too
	h.drop()
}

// drop gives back what an operation without the lock has.
func (h *held) drop() {
	_ = h.side.Close() // what counts was made durable
	<-h.f.turn
}

// makeSide makes the side file if there is none, and no content that would be older than its mark.
func (f *File) makeSide() error {
	path := f.path + sideSuffix
	_, err := os.Lstat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now, file, err := f.observe()
	if err != nil {
		return err
	}
	defer func() { _ = closeIf(file) }() // it was only looked at
	if now.Exists && !f.o.Adopt {
		return fault(ErrNoMark, noMark, nil)
	}
	side, err := f.p.create(path)
	if errors.Is(err, fs.ErrExist) {
		return nil // another was quicker
	}
	if err != nil {
		return err
	}
	return errors.Join(f.dress(side, file), side.Close())
}

// dress gives a new side file its owner and mode: those of the content, if there is any.
func (f *File) dress(side, like *os.File) error {
	if like == nil {
		return side.Chmod(f.o.Mode)
	}
	info, err := like.Stat()
	if err == nil {
		err = resemble(side, info)
	}
	if err == nil {
		err = side.Chmod(info.Mode()&os.ModePerm | 0o600) // a file that nobody may write can be replaced
	}
	return err
}

const noMark = "which tokens it had accepted is not known; nothing was changed; if it was never guarded, open it once with Adopt; " +
	"if its side file was lost, make sure first that no former holder runs"

// begin settles the state, or makes the first one, under the lock.
func (h *held) begin() error {
	f := h.f
	if err := h.probe(); err != nil {
		return err
	}
	side, err := h.side.Stat()
	if err != nil {
		return err
	}
	f.side = side
	_, found, err := readState(h.side)
	if err != nil {
		return err
	}
	if !found {
		return h.first()
	}
	if err := h.load(); err != nil {
		return err
	}
	if h.fits != nil && f.o.Adopt {
		h.fits = nil
		if err := h.still(h.st.Marks); err != nil {
			return err
		}
	}
	return f.dropNew()
}

// first writes the first state. It and the side file's name are durable before any content.
func (h *held) first() error {
	f := h.f
	now, file, err := f.observe()
	if err := errors.Join(err, closeIf(file)); err != nil {
		return err
	}
	if now.Exists && !f.o.Adopt {
		return fault(ErrNoMark, noMark, nil)
	}
	h.st.Side = rand.Text()
	if err := h.put(state{Before: now, After: now}); err != nil {
		return err
	}
	if err := f.p.syncFolder(f.folder); err != nil {
		return err
	}
	h.done(now)
	return nil
}

// probe tries whether a second open file is kept out while this one has the lock.
func (h *held) probe() error {
	second, err := os.OpenFile(h.side.Name(), os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	had, err := h.f.p.lock(second, lockMain)
	if had {
		_ = h.f.p.unlock(second, lockMain) // closing does it too
	}
	if err := errors.Join(err, second.Close()); err != nil {
		return err
	}
	if had {
		return fault(ErrNoLocks, "two have had the lock at once; nothing was changed; use another file system", nil)
	}
	return nil
}
