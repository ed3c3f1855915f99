package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-go/tenure/fence"
)

// Options say how a file is guarded. The zero value is ready to use.
type Options struct {
	// MaxSize bounds, in bytes, the content that is read or replaced, and what one Append adds. 0: 64 MiB.
	MaxSize int64
	// Mode is of a guarded file and of a side file that are made, whatever the umask; nothing on Windows. Whoever is to use the file must be able to write
	// both, and their folder. 0: 0600. A file that is replaced keeps its own; the side file of an adopted one gets the same owner and mode, and its
	// owner may write it.
	Mode os.FileMode
	// Adopt takes a file as it is that has no side file yet, or that another program has changed. For a file without a side file
	// the mark begins with the next claim, whichever that is: so set it once, not always.
	Adopt bool
	// SharedLocks says that locks on this file system exclude all who can open the file, on every machine, although its kind does not
	// promise that. That two opens on this machine exclude each other is tried all the same. A lock that can be lost while its holder runs on, as
	// that of an NFS client which was cut off from its server for a while, keeps nobody out.
	SharedLocks bool
}

const (
	defaultMaxSize = 64 << 20
	sideSuffix     = ".fence"
	newSuffix      = ".fence-new"
)

// File is a guarded file. It keeps nothing open between operations, so there is nothing to close. Safe for concurrent use, by
// any number of Files for the same path too, in this process and in others.
type File struct {
	path   string // absolute, without links
	folder string
	o      Options
	p      parts
	side   os.FileInfo // as it was when the file was opened

	turn chan struct{} // holds one: the goroutine whose operation it is
	// Of whoever has the turn: the side file's name and the highest state seen there, the state that this File itself has settled, or 0,
	// and what it left.
	name        string
	seen, clean uint64
	left        content
}

// Open prepares to use the guarded file at path, which need not exist, and settles what a crash may have left. It makes the side
// file if there is none, and waits for others that use it until ctx ends. Links in path are followed once, here.
//
// It returns an [*Error] matching [ErrNoMark] for a file that has content and no side file, unless Options.Adopt; [ErrCorrupt] or [ErrNewer]
// for a side file that it cannot read; [ErrNoLocks], [ErrNoSync] or [ErrNoNumbers] for a file system that cannot be relied on; [ErrNotPlain] for a file or side
// file that is a link, has several names or is no file; [ErrBusy] if ctx ended first; [ErrFull], [ErrDenied] or [ErrIO]; and an error matching
// [fence.ErrInvalid] for a path or options that cannot be. The guarded file was not changed, but for the
// tail of an append that crashed; a side file may have been made.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	return open(ctx, path, o, realParts())
}

func open(ctx context.Context, path string, o Options, p parts) (*File, error) {
	const op = "open"
	f := &File{path: path, o: o, p: p, turn: make(chan struct{}, 1)}
	if err := f.complete(); err != nil {
		return nil, err
	}
	err := f.resolve()
	if err == nil {
		if err := checkBase(f.path); err != nil { // where the links led
			return nil, err
		}
		err = f.trust()
	}
	if err == nil {
		err = f.makeSide()
	}
	if err != nil {
		return nil, f.describe(op, err)
	}
	h, err := f.hold(ctx)
	if err != nil {
		return nil, f.describe(op, err)
	}
	defer h.release()
	if err := f.describe(op, h.begin()); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) complete() error {
	if err := checkBase(f.path); err != nil {
		return err
	}
	switch {
	case f.o.MaxSize < 0:
		return &fence.InvalidError{What: "MaxSize", Problem: "negative"}
	case f.o.Mode != 0 && (f.o.Mode&^os.ModePerm != 0 || f.o.Mode&0o600 != 0o600):
		return &fence.InvalidError{What: "Mode", Problem: "want permissions alone, and those of the owner to read and write among them"}
	}
	if f.o.MaxSize == 0 {
		f.o.MaxSize = defaultMaxSize
	}
	if f.o.Mode == 0 {
		f.o.Mode = 0o600
	}
	return nil
}

func checkBase(path string) error {
	base := filepath.Base(path)
	switch {
	case path == "" || base == "." || base == ".." || base == string(filepath.Separator):
		return &fence.InvalidError{What: "path", Problem: "names no file"}
	case strings.HasSuffix(base, sideSuffix) || strings.HasSuffix(base, newSuffix):
		return &fence.InvalidError{What: "path", Problem: "names ending in " + sideSuffix + " or " + newSuffix + " are those of side files"}
	}
	return nil
}

// resolve follows links, so that a file has one side file whatever name it was opened by.
func (f *File) resolve() error {
	path, err := filepath.Abs(f.path)
	if err != nil {
		return err
	}
	named, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return err
		}
		f.path = filepath.Join(folder, filepath.Base(path))
	case err != nil:
		return err
	default:
		f.path, err = filepath.EvalSymlinks(path)
		if err != nil && named.Mode()&fs.ModeSymlink != 0 {
			f.path = path
			return fault(ErrNotPlain, "it is a symbolic link that leads nowhere; nothing was changed", err)
		}
		if err != nil {
			return err
		}
	}
	f.folder = filepath.Dir(f.path)
	return nil
}

// trust refuses a file system whose locks or whose durability cannot be relied on.
func (f *File) trust() error {
	kind, err := f.p.kindOfFS(f.folder)
	if err != nil {
		return err
	}
	if kind.unnumbered != "" {
		return fault(ErrNoNumbers, "the folder is on "+kind.unnumbered+", where a file cannot be told from the one that it replaced; nothing was changed; use another file system", nil)
	}
	if kind.distant != "" && !f.o.SharedLocks {
		return fault(ErrNoLocks, "the folder is on "+kind.distant+", where a lock may be known to this machine alone; nothing was changed; "+
			"use a local file system, or set SharedLocks if the mount's locks are shared by all who use it", nil)
	}
	alone, err := f.p.mountedAlone(f.path, f.folder)
	if err != nil {
		return err
	}
	if alone {
		return fault(ErrNotPlain, "it is mounted here by itself, so that its side file would not be beside it everywhere; nothing was changed; mount its folder", nil)
	}
	err = f.p.syncFolder(f.folder)
	if lacksSync(err) {
		return fault(ErrNoSync, "a file that was made or renamed here could be gone after a crash; nothing was changed; use another file system", err)
	}
	return err
}

// Read returns the content, or nil if there is no file yet. It waits while an operation is under way, and shows none that is
// half done; like every operation it needs to be able to write the side file. (Of a file that is only ever replaced, any program may read the
// content by its own means.) What it returns may be overwritten as soon as it returns: a holder that is
// going to write what it has read calls [File.Enter] or [File.Update].
//
// It returns an [*Error] matching [ErrChanged] if another program has changed the content, [ErrTooLarge], [ErrBusy], or one of the kinds that Open can
// return. Nothing was changed, but for the tail of an append that crashed.
func (f *File) Read(ctx context.Context) (data []byte, err error) {
	err = f.run(ctx, "read", func(h *held) error {
		data, err = h.read()
		return err
	})
	return data, err
}

// Enter raises the mark to the claim's token, durably, also when it is equal, and returns the content, or nil if there is no file
// yet. From then on nobody under a lower token changes the file: what the holder later writes by [File.Replace] rests on what it read here. The first
// claim binds the file to its authority and name.
//
// It returns a [*fence.RefusedError] naming the newer token, a [*fence.ForeignError], an error matching [fence.ErrInvalid], or an [*Error] as Read does.
// After an error the mark may have been raised, unless the claim was refused.
func (f *File) Enter(ctx context.Context, claim fence.Claim) (data []byte, err error) {
	err = f.run(ctx, "enter", func(h *held) error {
		if err := h.enter(claim, f.p.enter); err != nil {
			return err
		}
		data, err = h.read()
		return err
	})
	return data, err
}

// Update enters, calls change with the content (nil if there is no file yet), and replaces the content by what that returns.
// An error of change is returned as it is, and the content stays; the mark was raised all the same, because change has seen the content.
//
// All others wait while change runs: it must be short, and must not use the file. If ctx ends meanwhile nothing is written.
// Errors are those of [File.Enter] and [File.Replace].
func (f *File) Update(ctx context.Context, claim fence.Claim, change func(old []byte) ([]byte, error)) error {
	return f.run(ctx, "update", func(h *held) error {
		if err := h.enter(claim, f.p.enter); err != nil {
			return err
		}
		old, err := h.read()
		if err != nil {
			return err
		}
		data, err := change(old)
		if err != nil {
			return &callerError{err}
		}
		if err := h.inTime(ctx); err != nil {
			return err
		}
		return h.replace(claim, f.p.admit, data)
	})
}

// Replace makes data the whole content, in one step: whoever opens the file sees the former content or the new one, also after a
// crash. The permissions and the owner are kept. It is a blind write, of the mark's rule alone: a holder whose data rests on what it read has entered before.
//
// It returns a [*fence.RefusedError] naming the newer token, a [*fence.ForeignError], or an error matching [fence.ErrInvalid];
// an [*Error] matching [ErrUnknown] if the new content may be there or not; and otherwise one of a kind after which the content is what
// it was: [ErrTooLarge], [ErrBusy], [ErrFull], [ErrDenied], or what Open can return. It returns nil when content and mark are durable.
func (f *File) Replace(ctx context.Context, claim fence.Claim, data []byte) error {
	return f.run(ctx, "replace", func(h *held) error { return h.replace(claim, f.p.admit, data) })
}

// Append adds data at the end, all of it or nothing, also after a crash; it makes the file if there is none. Errors are those of
// [File.Replace], and [ErrChanged]. After [ErrUnknown] the next operation, of anybody, finds data there whole or not at all: appending
// the same again may have it there twice.
func (f *File) Append(ctx context.Context, claim fence.Claim, data []byte) error {
	return f.run(ctx, "append", func(h *held) error {
		if h.fits != nil {
			return h.fits
		}
		if !h.now.Exists {
			return h.replace(claim, f.p.admit, data)
		}
		return h.append(claim, data)
	})
}

// Allow lets the claims of another authority or name in, beside those of the one that entered first. Where none has entered yet the
// allowed one counts as the first, and all that are to enter must be allowed. Holders of different names do not exclude each other: whoever allows two has a reason why they need not. Allowing again changes nothing.
//
// It returns an error matching [fence.ErrInvalid] for what is no authority or name, and for more than [MaxNames]; or an [*Error] as Open does.
func (f *File) Allow(ctx context.Context, authority fence.ID, name string) error {
	if authority.IsZero() {
		return &fence.InvalidError{What: "claim", Problem: "no authority"}
	}
	if err := fence.CheckName(name); err != nil {
		return err
	}
	return f.run(ctx, "allow", func(h *held) error { return h.allow(authority, name) })
}
