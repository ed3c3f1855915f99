package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// The side file's locks. Each is one byte far behind the content, because Windows locks are mandatory.
const (
	lockNext        = iota // held by the one process that is next to write
	lockMain               // held by the process that writes
	lockIncarnation        // shared by all that have the database open; exclusive while an incarnation is made
)

const (
	recordAt     = 0 // incarnation (16), device (8), inode (8), birth (8)
	recordLength = 40
	holderAt     = 64 // pid (8), boot clock when MAIN was taken (8)
	holderLength = 16
)

// sideFile is FILE-tenure: the turnstile, the incarnation and who is writing.
type sideFile struct {
	file  *os.File
	locks lockFiles
	now   func() time.Duration // the kernel's clock, comparable between the processes of one machine
	// former says who had the turn before the store was opened, for error texts.
	former string
}

func openSideFile(path string, now func() time.Duration) (*sideFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locks, err := openLockFiles(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &sideFile{file: file, locks: locks, now: now}, nil
}

// close gives up the locks by themselves first: a child that this process is just starting has a copy of the open file
// until it has become the other program, and would keep them for that moment.
func (f *sideFile) close() error {
	for _, which := range [...]int{lockIncarnation, lockMain, lockNext} {
		_ = f.unlock(which) // where it was not held that is an error on some systems
	}
	return errors.Join(f.locks.close(), f.file.Close())
}

// enter waits for this process's turn to write. It cannot be cancelled: a blocked file lock stays blocked
// until the holder lets go or dies. Only goroutines that may be left behind call it.
func (f *sideFile) enter() error {
	if err := f.takeTurn(); err != nil {
		return err
	}
	f.sign()
	return nil
}

func (f *sideFile) takeTurn() error {
	if err := f.lock(lockNext, exclusive); err != nil {
		return err
	}
	err := f.lock(lockMain, exclusive)
	if unlockErr := f.unlock(lockNext); err == nil {
		err = unlockErr
	}
	return err
}

// sign writes who has the turn. It serves error texts only, so that a full disk does not stop the turn.
func (f *sideFile) sign() {
	var holder [holderLength]byte
	binary.BigEndian.PutUint64(holder[:8], uint64(os.Getpid()))
	binary.BigEndian.PutUint64(holder[8:], uint64(f.now()))
	_, _ = f.file.WriteAt(holder[:], holderAt)
}

// leave ends this process's turn.
func (f *sideFile) leave() error { return f.unlock(lockMain) }

// enterWithin is enter, given up when ctx ends; the turn is passed on if it comes later.
func (f *sideFile) enterWithin(ctx context.Context, path string) error {
	mine, err := openSideFile(path, f.now) // an open file of its own, so that the late turn can be dropped with it
	if err != nil {
		return err
	}
	entered := make(chan error, 1)
	go func() { entered <- mine.takeTurn() }()
	select {
	case err := <-entered:
		if err != nil {
			return errors.Join(err, mine.close())
		}
		err = f.close()
		f.file, f.locks, f.former = mine.file, mine.locks, mine.heldBy()
		f.sign()
		return err
	case <-ctx.Done():
		go func() {
			_ = errors.Join(<-entered, mine.close()) // whatever came of it is dropped with the file
		}()
		return fmt.Errorf("%w while waiting to write%s", ctx.Err(), f.heldBy())
	}
}

// heldBy says who is writing, for error texts.
func (f *sideFile) heldBy() string {
	var holder [holderLength]byte
	if _, err := f.file.ReadAt(holder[:], holderAt); err != nil {
		return ""
	}
	pid := int(binary.BigEndian.Uint64(holder[:8]))
	since := f.now() - time.Duration(binary.BigEndian.Uint64(holder[8:]))
	if pid <= 0 || since < 0 {
		return ""
	}
	return fmt.Sprintf("; the last to write was pid %d%s, %v ago", pid, processState(pid), since.Round(time.Millisecond))
}

// identity is which file on which device. An inode's number is used again after its file was deleted, so
// the time of its birth belongs to it, where the file system keeps one.
type identity struct{ device, inode, born uint64 }

// sameFile compares but for the device, whose number may change with every mount.
func (i identity) sameFile(other identity) bool {
	return i.inode == other.inode && i.born == other.born
}

// record is what the side file keeps of the database.
type record struct {
	incarnation fence.ID
	file        identity
}

func (f *sideFile) readRecord() (record, bool, error) {
	var raw [recordLength]byte
	_, err := f.file.ReadAt(raw[:], recordAt)
	if errors.Is(err, io.EOF) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, err
	}
	r := record{file: identity{binary.BigEndian.Uint64(raw[16:24]), binary.BigEndian.Uint64(raw[24:32]), binary.BigEndian.Uint64(raw[32:40])}}
	copy(r.incarnation[:], raw[:16])
	return r, !r.incarnation.IsZero(), nil
}

func (f *sideFile) writeRecord(r record) error {
	var raw [recordLength]byte
	copy(raw[:16], r.incarnation[:])
	binary.BigEndian.PutUint64(raw[16:24], r.file.device)
	binary.BigEndian.PutUint64(raw[24:32], r.file.inode)
	binary.BigEndian.PutUint64(raw[32:40], r.file.born)
	_, err := f.file.WriteAt(raw[:], recordAt)
	return err
}
