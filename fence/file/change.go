package file

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/tenure-go/tenure/fence"
)

// rule is one of fence's, or what a test puts in its place.
type rule func(fence.Mark, fence.Claim) (fence.Mark, error)

// marks returns the marks as they are once the claim has passed, or the refusal.
func (h *held) marks(claim fence.Claim, decide rule) ([]mark, error) {
	m, at := h.st.markOf(h.f.path, claim)
	m, err := decide(m, claim)
	if err != nil {
		return nil, err
	}
	marks := slices.Clone(h.st.Marks)
	if at == len(marks) {
		marks = append(marks, mark{})
	}
	marks[at] = mark{Authority: m.Authority, Name: m.Name, Token: m.Token}
	return marks, nil
}

// still writes a state that changes marks alone. What a crash had left is settled, and content that does not fit goes on not fitting.
func (h *held) still(marks []mark) error {
	st := state{Marks: marks, Before: h.now, After: h.now}
	if h.fits != nil {
		st.Before, st.After = h.st.After, h.st.After
		return h.put(st)
	}
	if err := h.put(st); err != nil {
		return err
	}
	h.done(h.now)
	return nil
}

func (h *held) enter(claim fence.Claim, decide rule) error {
	marks, err := h.marks(claim, decide)
	if err != nil {
		return err
	}
	return h.still(marks)
}

func (h *held) allow(authority fence.ID, name string) error {
	for _, m := range h.st.Marks {
		if m.Authority == authority && m.Name == name {
			return nil
		}
	}
	if len(h.st.Marks) == MaxNames {
		return &fence.InvalidError{What: "name", Problem: fmt.Sprintf("%d names guard this file already, and more are not kept", MaxNames)}
	}
	return h.still(append(slices.Clone(h.st.Marks), mark{Authority: authority, Name: name}))
}

// read returns the content, if it is what the last operation left.
func (h *held) read() ([]byte, error) {
	if h.fits != nil {
		return nil, h.fits
	}
	if !h.now.Exists {
		return nil, nil
	}
	if err := h.f.small(h.now.Size); err != nil {
		return nil, err
	}
	now, file, err := h.f.observe()
	if err != nil {
		return nil, err
	}
	if file == nil || now != h.now {
		return nil, errors.Join(changed(now, h.now), closeIf(file))
	}
	data := make([]byte, now.Size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return data, file.Close()
}

func closeIf(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

func (f *File) small(size int64) error {
	if size > f.o.MaxSize {
		return fault(ErrTooLarge, fmt.Sprintf("%d bytes, and %d are the most; the content was not changed; set MaxSize", size, f.o.MaxSize), nil)
	}
	return nil
}

// replace makes the new content beside the old, records it together with the mark, and puts it in the old one's place.
func (h *held) replace(claim fence.Claim, decide rule, data []byte) error {
	f := h.f
	marks, err := h.marks(claim, decide)
	if err != nil {
		return err
	}
	if err := f.small(int64(len(data))); err != nil {
		return err
	}
	after, err := h.prepare(data)
	if err == nil {
		err = h.put(state{Marks: marks, Before: h.now, After: after})
	}
	if err == nil {
		if err = f.p.rename(f.path+newSuffix, f.path); err != nil {
			return h.notRenamed(err, after)
		}
	}
	if err != nil {
		return errors.Join(err, f.dropNew())
	}
	if err := f.p.syncFolder(f.folder); err != nil {
		return unknown(err)
	}
	if !h.now.Exists {
		// No content is what a crash would have left too, and what there is after somebody removed the file: from here on it is the latter.
		if err := h.put(state{Marks: marks, Before: after, After: after}); err != nil {
			return nil //nolint:nilerr // what was asked for is durable, and the next operation writes the state anew
		}
	}
	h.done(after)
	return nil
}

// notRenamed is the error of a rename. It may have come to pass all the same: a server's answer can be lost.
func (h *held) notRenamed(err error, after content) error {
	now, file, lookErr := h.f.observe()
	lookErr = errors.Join(lookErr, closeIf(file))
	if lookErr != nil || now == after {
		return unknown(errors.Join(err, lookErr))
	}
	return errors.Join(err, h.f.dropNew())
}

// prepare writes the new content, durably, under the name that only whoever has the lock uses.
func (h *held) prepare(data []byte) (content, error) {
	f := h.f
	if err := f.dropNew(); err != nil { // of a writer that crashed
		return content{}, err
	}
	file, err := f.p.create(f.path + newSuffix)
	if err != nil {
		return content{}, err
	}
	number, err := h.fill(file, data)
	return content{Exists: true, Inode: number, Size: int64(len(data))}, errors.Join(err, file.Close())
}

func (h *held) fill(file *os.File, data []byte) (number uint64, err error) {
	f := h.f
	if h.now.Exists {
		var like os.FileInfo
		if like, err = os.Lstat(f.path); err == nil {
			err = resemble(file, like)
		}
	} else {
		err = file.Chmod(f.o.Mode)
	}
	if err != nil {
		return 0, err
	}
	if err := f.p.writeAt(file, data, 0); err != nil {
		return 0, err
	}
	if err := f.p.sync(file); err != nil {
		return 0, err
	}
	number, _, err = f.p.inode(file)
	return number, err
}

// dropNew removes new content that did not come to its place.
func (f *File) dropNew() error {
	err := f.p.remove(f.path + newSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// append records what it is going to add together with the mark, and adds it.
func (h *held) append(claim fence.Claim, data []byte) error {
	f := h.f
	marks, err := h.marks(claim, f.p.admit)
	if err != nil {
		return err
	}
	if err := f.small(int64(len(data))); err != nil {
		return err
	}
	if len(data) == 0 {
		return h.still(marks)
	}
	file, err := f.openPlain(f.path, os.O_RDWR|noFollow)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // what was written is durable, or cut off
	sum := sha256.Sum256(data)
	after := h.now
	after.Size += int64(len(data))
	if err := h.put(state{Marks: marks, Before: h.now, After: after, Tail: hex.EncodeToString(sum[:])}); err != nil {
		return err
	}
	err = f.p.writeAt(file, data, h.now.Size)
	if err == nil {
		err = f.p.sync(file)
	}
	if err != nil {
		if back := f.cut(h.now.Size); back != nil {
			return unknown(errors.Join(err, back))
		}
		return err
	}
	h.done(after)
	return nil
}
