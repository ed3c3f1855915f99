package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// written is a file that holds "five" under token 5.
func written(t testing.TB) (string, *File) {
	t.Helper()
	path := fresh(t)
	f := mustOpen(t, path, Options{})
	must(t, f.Replace(t.Context(), claim(5), []byte("five")))
	return path, f
}

// openFails makes sure that Open refuses with a kind, and that the content is as it was.
func openFails(t *testing.T, what, path string, o Options, kind error) {
	t.Helper()
	before := contentOf(t, path)
	if _, err := Open(t.Context(), path, o); !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
	if got := contentOf(t, path); got != before {
		t.Errorf("%s: the content became %q", what, got)
	}
}

// TestSideFileLost: without its mark a file with content is refused, and never begins again at zero.
func TestSideFileLost(t *testing.T) {
	t.Parallel()
	damages := map[string]struct {
		kind error
		to   func(side []byte) []byte
	}{
		"emptied":                       {ErrNoMark, func([]byte) []byte { return nil }},
		"both copies damaged":           {ErrCorrupt, func(s []byte) []byte { s[slotHead+8]++; s[slotSize+slotHead+8]++; return s }},
		"both checksums damaged":        {ErrCorrupt, func(s []byte) []byte { s[30]++; s[slotSize+30]++; return s }},
		"overwritten":                   {ErrCorrupt, func(s []byte) []byte { return bytes.Repeat([]byte("x"), len(s)) }},
		"zeroed":                        {ErrCorrupt, func(s []byte) []byte { return make([]byte, len(s)) }},
		"a copy of long ago":            {ErrCorrupt, func(s []byte) []byte { return append(oldCopy(), s[slotSize:]...) }},
		"a second copy of a later time": {ErrCorrupt, func(s []byte) []byte { copy(s[slotSize:], oldCopy()); return s }},
		"of a newer version":            {ErrNewer, func(s []byte) []byte { return bytes.ReplaceAll(s, []byte(format), []byte(formatFamily+"2\n")) }},
	}
	for what, d := range damages {
		path, f := written(t)
		side, err := os.ReadFile(path + sideSuffix)
		must(t, err)
		must(t, os.WriteFile(path+sideSuffix, d.to(side), 0o600))
		openFails(t, what, path, Options{}, d.kind)
		if err := f.Replace(t.Context(), claim(4), []byte("late")); !errors.Is(err, d.kind) {
			t.Errorf("%s, while in use: %v, want %v", what, err, d.kind)
		}
	}
	path, f := written(t)
	side, err := os.ReadFile(path + sideSuffix)
	must(t, err)
	_, err = f.Enter(t.Context(), claim(7))
	must(t, err)
	must(t, os.WriteFile(path+sideSuffix, side, 0o600))
	if err := f.Replace(t.Context(), claim(6), []byte("late")); !errors.Is(err, ErrReplaced) {
		t.Errorf("an older copy put back while in use: %v", err)
	}
	must(t, os.Remove(path+sideSuffix))
	openFails(t, "removed", path, Options{}, ErrNoMark)
	if err := f.Replace(t.Context(), claim(4), []byte("late")); !errors.Is(err, ErrReplaced) {
		t.Errorf("removed while in use: %v", err)
	}
	mustOpen(t, path, Options{Adopt: true})
	if err := f.Replace(t.Context(), claim(4), []byte("late")); !errors.Is(err, ErrReplaced) || contentOf(t, path) != "five" {
		t.Errorf("replaced while in use: %v", err)
	}
}

// oldCopy is a whole copy of a state of long ago, or of a time to come: its number fits no other.
func oldCopy() []byte {
	st := state{Seq: 77}
	slot, err := st.encode()
	if err != nil {
		return nil
	}
	return slot
}

// TestOneCopyDamaged: whichever copy is damaged, and wherever, the mark is that of the other.
func TestOneCopyDamaged(t *testing.T) {
	t.Parallel()
	path, _ := written(t)
	whole, err := os.ReadFile(path + sideSuffix)
	must(t, err)
	for at := 0; at < 2*slotSize; at += 389 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x20
		must(t, os.WriteFile(path+sideSuffix, damaged, 0o600))
		f := mustOpen(t, path, Options{})
		if err := f.Replace(t.Context(), claim(4), []byte("late")); !errors.Is(err, fence.ErrRefused) {
			t.Fatalf("byte %d: %v", at, err)
		}
		must(t, f.Append(t.Context(), claim(5), nil))
	}
	if got := contentOf(t, path); got != "five" {
		t.Errorf("the content became %q", got)
	}
}

// TestChanged: what another program did to the file is noticed, and mended by a replacement or on demand.
func TestChanged(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(path string) error{
		"appended":  func(path string) error { return os.WriteFile(path, []byte("five and more"), 0o600) },
		"cut short": func(path string) error { return os.Truncate(path, 2) },
		"removed":   os.Remove,
		"renamed over": func(path string) error {
			return errors.Join(os.WriteFile(path+".x", []byte("FIVE"), 0o600), os.Rename(path+".x", path))
		},
	} {
		path, f := written(t)
		must(t, change(path))
		now := contentOf(t, path)
		_, read := f.Read(t.Context())
		_, entered := mustOpen(t, path, Options{}).Enter(t.Context(), claim(5))
		updated := f.Update(t.Context(), claim(5), func([]byte) ([]byte, error) { return []byte("x"), nil })
		for op, err := range map[string]error{"read": read, "enter": entered, "update": updated, "append": f.Append(t.Context(), claim(5), []byte("x"))} {
			if !errors.Is(err, ErrChanged) {
				t.Errorf("%s: %s: %v", what, op, err)
			}
		}
		if got := contentOf(t, path); got != now {
			t.Errorf("%s: the content became %q", what, got)
		}
		adopted := mustOpen(t, path, Options{Adopt: true})
		must(t, adopted.Append(t.Context(), claim(5), []byte("+")))
		if got := contentOf(t, path); got != now+"+" {
			t.Errorf("%s: adopted and appended to, it holds %q", what, got)
		}
		must(t, change(path))
		if err := adopted.Replace(t.Context(), claim(4), []byte("late")); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s: adopting lowered the mark: %v", what, err)
		}
		must(t, f.Replace(t.Context(), claim(5), []byte("again")))
		if got, err := f.Read(t.Context()); err != nil || string(got) != "again" {
			t.Errorf("%s: replaced, it holds %q, %v", what, got, err)
		}
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	must(t, os.WriteFile(path, []byte("mine"), 0o640))
	must(t, os.Chmod(path, 0o640))
	openFails(t, "never guarded", path, Options{}, ErrNoMark)
	if _, err := os.Lstat(path + sideSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused Open leaves a side file: %v", err)
	}
	f := mustOpen(t, path, Options{Adopt: true})
	if got, err := f.Enter(t.Context(), claim(5)); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	must(t, f.Append(t.Context(), claim(5), []byte("+")))
	must(t, mustOpen(t, path, Options{}).Append(t.Context(), claim(5), []byte("+")))
	if got := contentOf(t, path); got != "mine++" {
		t.Errorf("%q", got)
	}
}

func TestMissingIsNoContent(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f := mustOpen(t, path, Options{})
	if got, err := f.Read(t.Context()); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
	must(t, f.Replace(t.Context(), claim(5), nil))
	if got, err := f.Read(t.Context()); err != nil || got == nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f := mustOpen(t, path, Options{MaxSize: 4})
	must(t, f.Replace(t.Context(), claim(5), []byte("five")))
	for op, err := range map[string]error{
		"replace": f.Replace(t.Context(), claim(5), []byte("fives")), "append": f.Append(t.Context(), claim(5), []byte("fives")),
		"update": f.Update(t.Context(), claim(5), func(old []byte) ([]byte, error) { return append(old, 's'), nil }),
	} {
		if !errors.Is(err, ErrTooLarge) || contentOf(t, path) != "five" {
			t.Errorf("%s: %v", op, err)
		}
	}
	must(t, f.Append(t.Context(), claim(5), []byte("s"))) // a log may grow beyond what is read at once
	if _, err := f.Read(t.Context()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("read: %v", err)
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for path, o := range map[string]Options{
		"": {}, "/": {}, folder + "/..": {}, folder + "/a.fence": {}, folder + "/a.fence-new": {}, folder + "/a": {MaxSize: -1}, folder + "/b": {Mode: os.ModeDir | 0o700}, folder + "/d": {Mode: 0o440},
	} {
		if _, err := Open(t.Context(), path, o); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q, %+v: %v", path, o, err)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(folder, "absent", "a"), Options{}); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, ErrIO) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	f := mustOpen(t, filepath.Join(folder, "c"), Options{})
	for n := range MaxNames {
		must(t, f.Allow(t.Context(), id(1), strings.Repeat(`"`, fence.MaxName-1)+fmt.Sprint(n)))
	}
	for what, err := range map[string]error{
		"too many": f.Allow(t.Context(), id(1), "more"), "no authority": f.Allow(t.Context(), fence.ID{}, "more"), "no name": f.Allow(t.Context(), id(1), "a#1"),
	} {
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestUnreliable: what the file system cannot be relied on for is refused before anything is made.
func TestUnreliable(t *testing.T) {
	t.Parallel()
	distantly := func(p *parts) {
		p.kindOfFS = func(string) (fileSystem, error) { return fileSystem{distant: "a network's"}, nil }
	}
	everybody := func(p *parts) { p.lock = func(*os.File, int) (bool, error) { return true, nil } }
	for _, c := range []struct {
		what   string
		o      Options
		change func(*parts)
		kind   error
	}{
		{"distant", Options{}, distantly, ErrNoLocks},
		{"without inodes", Options{SharedLocks: true}, func(p *parts) {
			p.kindOfFS = func(string) (fileSystem, error) { return fileSystem{unnumbered: "FAT"}, nil }
		}, ErrNoNumbers},
		{"mounted by itself", Options{}, func(p *parts) { p.mountedAlone = func(string, string) (bool, error) { return true, nil } }, ErrNotPlain},
		{"distant, with shared locks", Options{SharedLocks: true}, distantly, nil},
		{"distant, said to have shared locks", Options{SharedLocks: true}, func(p *parts) { distantly(p); everybody(p) }, ErrNoLocks},
		{"without locks", Options{}, everybody, ErrNoLocks},
	} {
		p := realParts()
		c.change(&p)
		_, err := open(t.Context(), fresh(t), c.o, p)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", c.what, err, c.kind)
		}
	}
}

// TestFailures: after an error of the disk it is known what became of the content, or said that it is not.
func TestFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		what   string
		change func(p *parts)
		op     func(f *File) error
		kind   error
		holds  string
	}{
		{"folder not durable after a rename", func(p *parts) { p.syncFolder = func(string) error { return broken } },
			func(f *File) error { return f.Replace(ctx(), claim(7), []byte("seven")) }, ErrUnknown, "seven"},
		{"rename fails", func(p *parts) { p.rename = func(string, string) error { return broken } },
			func(f *File) error { return f.Replace(ctx(), claim(7), []byte("seven")) }, ErrIO, "five"},
		{"renamed, and an error", func(p *parts) {
			rename := p.rename
			p.rename = func(from, to string) error { return errors.Join(rename(from, to), broken) }
		}, func(f *File) error { return f.Replace(ctx(), claim(7), []byte("seven")) }, ErrUnknown, "seven"},
		{"append not durable, and cut off", func(p *parts) { p.sync = failOnce(p.sync, broken) },
			func(f *File) error { return f.Append(ctx(), claim(7), []byte("+")) }, ErrIO, "five"},
		{"append not durable, nor cut off", func(p *parts) {
			p.sync, p.truncate = failOnce(p.sync, broken), func(*os.File, int64) error { return broken }
		}, func(f *File) error { return f.Append(ctx(), claim(7), []byte("+")) }, ErrUnknown, "five+"},
		{"mark not durable", func(p *parts) { p.sync = func(*os.File) error { return broken } },
			func(f *File) error { return f.Append(ctx(), claim(7), []byte("+")) }, ErrIO, "five"},
	} {
		path, f := written(t)
		c.change(&f.p)
		if err := c.op(f); !errors.Is(err, c.kind) || !errors.Is(err, broken) {
			t.Errorf("%s: %v, want %v", c.what, err, c.kind)
		}
		sound := mustOpen(t, path, Options{})
		if got, err := sound.Read(t.Context()); err != nil || string(got) != c.holds {
			t.Errorf("%s: it holds %q, %v", c.what, got, err)
		}
		must(t, sound.Append(t.Context(), claim(7), []byte("|")))
	}
}

// failOnce fails the first time that the guarded file itself is made durable.
func failOnce(sync func(*os.File) error, err error) func(*os.File) error {
	failed := false
	return func(file *os.File) error {
		if !failed && !isSide(file) && !strings.HasSuffix(file.Name(), newSuffix) {
			failed = true
			return err
		}
		return sync(file)
	}
}

// TestWaiting: a wait ends with its context, writes nothing, and passes the lock on when it comes.
func TestWaiting(t *testing.T) {
	t.Parallel()
	path, f := written(t)
	other := mustOpen(t, path, Options{})
	inside, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- f.Update(ctx(), claim(6), func([]byte) ([]byte, error) {
			close(inside)
			<-goOn
			return []byte("six"), nil
		})
	}()
	<-inside
	for _, waiting := range []*File{f, other, other} { // for its turn, for the lock, and for the turn of who waits for the lock
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := waiting.Replace(short, claim(7), []byte("gone")); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	close(goOn)
	must(t, <-done)
	if got, err := other.Read(t.Context()); err != nil || string(got) != "six" {
		t.Errorf("%q, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	err := f.Update(ended, claim(7), func([]byte) ([]byte, error) { cancel(); return []byte("late"), nil })
	if !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) || contentOf(t, path) != "six" {
		t.Errorf("a context that ended during the change: %v", err)
	}
	if err := f.Append(ended, claim(7), []byte("late")); !errors.Is(err, ErrBusy) || contentOf(t, path) != "six" {
		t.Errorf("a context that had ended: %v", err)
	}
}

// TestGoroutines: many Files and goroutines of one process exclude each other like processes.
func TestGoroutines(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	const files, goroutines, times = 3, 2, 8
	var all sync.WaitGroup
	for n := range files {
		f := mustOpen(t, path, Options{})
		for g := range goroutines {
			all.Go(func() {
				for i := range times {
					line := fmt.Sprintf("%d %d %d\n", n, g, i)
					err := f.Update(ctx(), claim(5), func(old []byte) ([]byte, error) { return append(old, line...), nil })
					if i%2 == 1 {
						err = errors.Join(err, f.Append(ctx(), claim(5), []byte(line)))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if got := strings.Count(contentOf(t, path), "\n"); got != files*goroutines*times*3/2 {
		t.Errorf("%d lines", got)
	}
}

// TestErrorKinds: none satisfies another, and each says where.
func TestErrorKinds(t *testing.T) {
	t.Parallel()
	kinds := []error{ErrBusy, ErrUnknown, ErrNoMark, ErrCorrupt, ErrNewer, ErrReplaced, ErrChanged, ErrNotPlain, ErrNoLocks, ErrNoSync, ErrNoNumbers, ErrTooLarge, ErrFull, ErrDenied, ErrIO}
	for i, kind := range kinds {
		err := &Error{Path: "/data/orders", Op: "append", Kind: kind, Detail: "do this"}
		for j, other := range kinds {
			if errors.Is(err, other) != (i == j) {
				t.Errorf("%v matches %v: %v", err, other, i != j)
			}
		}
		if text := err.Error(); !strings.Contains(text, "append of /data/orders") || !strings.Contains(text, "do this") {
			t.Errorf("%q", text)
		}
	}
}
