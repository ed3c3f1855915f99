package file

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// parts are what an operation is made of. Tests put others in their place: to kill the process, fill the disk or lose
// power between any two calls, and to build what is broken on purpose.
type parts struct {
	disk
	admit, enter func(fence.Mark, fence.Claim) (fence.Mark, error)

	// lock takes one of the side file's locks, or reports false where another has it.
	lock     func(side *os.File, which int) (bool, error)
	unlock   func(side *os.File, which int) error
	kindOfFS func(folder string) (fileSystem, error)
	// mountedAlone reports whether a file, if it exists, is a mount of its own in its folder.
	mountedAlone func(path, folder string) (bool, error)
}

// disk is every call that changes what is on the disk, and the one that tells files apart.
type disk struct {
	create     func(path string) (*os.File, error) // for reading and writing; fails where something of that name is
	writeAt    func(file *os.File, data []byte, at int64) error
	truncate   func(file *os.File, size int64) error
	sync       func(file *os.File) error
	rename     func(from, to string) error
	syncFolder func(path string) error
	remove     func(path string) error
	inode      func(file *os.File) (number, names uint64, err error)
}

func realParts() parts {
	return parts{
		disk: disk{
			create: func(path string) (*os.File, error) {
				return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
			},
			writeAt:    func(file *os.File, data []byte, at int64) error { _, err := file.WriteAt(data, at); return err },
			truncate:   func(file *os.File, size int64) error { return file.Truncate(size) },
			sync:       func(file *os.File) error { return file.Sync() },
			rename:     rename,
			syncFolder: syncFolder,
			remove:     os.Remove,
			inode:      inodeOf,
		},
		admit: fence.Admit, enter: fence.Enter, lock: lockByte, unlock: unlockByte, kindOfFS: kindOfFS, mountedAlone: mountedAlone,
	}
}

// fileSystem is what speaks against a file system; each field names its kind, if it is so.
type fileSystem struct {
	distant    string // its locks are not known to be those of all who can open a file
	unnumbered string // it makes up inode numbers, or changes them with a rename
}

// The side file's locks.
const (
	lockNext = iota // held by the one process that is next, so that a busy process does not starve it
	lockMain        // held by whoever reads or changes the content or the state
)

// How often a lock is asked for that another has: doubling from the first to the last.
const (
	askFirst = 100 * time.Microsecond
	askLast  = 5 * time.Millisecond
)

// wait takes the main lock, or returns false when ctx ends. It asks again and again: a file lock that the system waits for cannot be given up,
// and each caller that had gone would leave a thread behind for as long as a stopped process has the lock.
func (p *parts) wait(ctx context.Context, side *os.File) (bool, error) {
	if had, err := p.ask(ctx, side, lockNext); !had || err != nil {
		return false, err
	}
	had, err := p.ask(ctx, side, lockMain)
	return had, errors.Join(err, p.unlock(side, lockNext))
}

func (p *parts) ask(ctx context.Context, side *os.File, which int) (bool, error) {
	timer := time.NewTimer(askFirst)
	defer timer.Stop()
	for pause := askFirst; ; pause = min(2*pause, askLast) {
		if had, err := p.lock(side, which); had || err != nil {
			return had, err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// try takes the main lock if nobody has it and nobody is next.
func (p *parts) try(side *os.File) (bool, error) {
	if free, err := p.lock(side, lockNext); !free || err != nil {
		return false, err
	}
	had, err := p.lock(side, lockMain)
	return had, errors.Join(err, p.unlock(side, lockNext))
}
