package file

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// held is an operation that has the lock.
type held struct {
	f    *File
	side *os.File
	st   state
	now  content // as it was found, settled
	fits error   // nil, or that the content is not what the last operation left
}

// load reads the state and settles what a crash may have left of the operation before.
func (h *held) load() error {
	f := h.f
	got, found, err := readState(h.side)
	if err != nil {
		return err
	}
	if !found {
		return fault(ErrNoMark, "the side file is empty; nothing was changed; open the file again, with Adopt if it has content", nil)
	}
	if f.name != "" && (got.Side != f.name || got.Seq < f.seen) {
		return fault(ErrReplaced, "it is another one, or an older copy; nothing was changed; find out who replaced it: the mark may have gone back with it", nil)
	}
	h.st, f.name, f.seen = got.state, got.Side, got.Seq
	if got.other < 0 && h.st.Seq == f.clean {
		h.sign()
		return h.look()
	}
	f.clean = 0
	err = f.p.sync(h.side) // what was read may not have been durable
	if err == nil && got.other >= 0 {
		err = f.putCopy(h.side, got.raw, got.other)
	}
	if err == nil {
		h.sign()
		err = h.settle()
	}
	if err == nil && h.fits == nil {
		f.clean, f.left = h.st.Seq, h.now
	}
	return err
}

// putCopy writes one copy of the state and makes it durable.
func (f *File) putCopy(side *os.File, slot []byte, which int) error {
	if err := f.p.writeAt(side, slot, int64(which)*slotSize); err != nil {
		return err
	}
	return f.p.sync(side)
}

// put writes a state: one copy after the other, so that a crash spoils one at most.
func (h *held) put(st state) error {
	f := h.f
	st.Side, st.Seq = h.st.Side, h.st.Seq+1
	slot, err := st.encode()
	if err != nil {
		return err
	}
	f.clean = 0
	for which := range 2 {
		if err := f.putCopy(h.side, slot, which); err != nil {
			return err
		}
	}
	h.st, f.name, f.seen = st, st.Side, st.Seq
	return nil
}

// done keeps what the operation left, so that the next one of this File need not settle it.
func (h *held) done(left content) {
	h.now, h.fits = left, nil
	h.f.clean, h.f.left = h.st.Seq, left
}

// look compares the content with what this File itself left.
func (h *held) look() error {
	now, file, err := h.f.observe()
	if err != nil {
		return err
	}
	h.now = now
	if now != h.f.left {
		h.fits = changed(now, h.f.left)
	}
	if file == nil {
		return nil
	}
	return file.Close()
}

func changed(now, left content) error {
	text := func(c content) string {
		if !c.Exists {
			return "no file"
		}
		return fmt.Sprintf("%d bytes in inode %d", c.Size, c.Inode)
	}
	return fault(ErrChanged, "the last operation left "+text(left)+", and there is "+text(now)+
		"; nothing was changed; look at the file, then open it with Adopt, or replace it", nil)
}

// settle finds out what became of the operation that wrote the state, and makes that durable.
func (h *held) settle() error {
	f := h.f
	now, file, err := f.observe()
	h.now = now
	if err != nil {
		return err
	}
	if file != nil {
		defer func() { _ = file.Close() }() // it was only read
	}
	before, after := h.st.Before, h.st.After
	if h.st.Tail != "" && now.Exists && now.Inode == before.Inode && now.Size > before.Size && now.Size <= after.Size {
		return h.settleTail(file)
	}
	if now != before && now != after {
		h.fits = changed(now, after)
		return nil
	}
	if file != nil {
		err = f.p.sync(file)
	}
	return errors.Join(err, f.p.syncFolder(f.folder))
}

// settleTail keeps what an append left if it is whole, and cuts it off if it is not.
func (h *held) settleTail(file *os.File) error {
	f := h.f
	if h.now == h.st.After {
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(file, h.st.Before.Size, h.st.After.Size-h.st.Before.Size)); err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) == h.st.Tail {
			return f.p.sync(file)
		}
	}
	err := f.cut(h.st.Before.Size)
	if err == nil {
		h.now = h.st.Before
	}
	return err
}

// cut ends the content at size, durably.
func (f *File) cut(size int64) error {
	file, err := os.OpenFile(f.path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	err = f.p.truncate(file, size)
	if err == nil {
		err = f.p.sync(file)
	}
	return errors.Join(err, file.Close())
}

// observe opens the guarded file for reading and says what is there. Where nothing is, the file is nil.
func (f *File) observe() (content, *os.File, error) {
	file, err := f.openPlain(f.path, readFlags)
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, nil, nil
	}
	if err != nil {
		return content{}, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return content{}, nil, errors.Join(err, file.Close())
	}
	number, _, err := f.p.inode(file)
	if err != nil {
		return content{}, nil, errors.Join(err, file.Close())
	}
	return content{Exists: true, Inode: number, Size: info.Size()}, file, nil
}

// openPlain opens a regular file that has one name, and no link to it.
func (f *File) openPlain(path string, flags int) (*os.File, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, fault(ErrNotPlain, path+" is a "+kindOf(named.Mode())+"; nothing was changed", nil)
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	opened, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if !os.SameFile(named, opened) {
		return nil, errors.Join(fault(ErrReplaced, path+" became another file while it was opened; nothing was changed; try again", nil), file.Close())
	}
	_, names, err := f.p.inode(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if names > 1 {
		return nil, errors.Join(fault(ErrNotPlain, fmt.Sprintf("%s has %d names (hard links), and each would have a mark of its own; nothing was changed", path, names), nil), file.Close())
	}
	return file, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}
