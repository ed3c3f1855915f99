//go:build unix

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/fence"
)

// TestLinks: a file has one mark, by whatever name it is opened; where it would have several, it is refused.
func TestLinks(t *testing.T) {
	t.Parallel()
	path, f := written(t)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	linked := mustOpen(t, link, Options{})
	must(t, linked.Replace(t.Context(), claim(7), []byte("seven")))
	if err := f.Replace(t.Context(), claim(6), nil); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("by another name: %v", err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 || contentOf(t, path) != "seven" {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	must(t, os.Symlink(path+sideSuffix, link+".side"))
	openFails(t, "a link to a side file", link+".side", Options{Adopt: true}, fence.ErrInvalid)
	second := path + ".second"
	must(t, os.Link(path, second))
	openFails(t, "a second name", second, Options{Adopt: true}, ErrNotPlain)
	if _, err := os.Lstat(second + sideSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused Open leaves a side file: %v", err)
	}
	if err := f.Append(t.Context(), claim(7), []byte("x")); !errors.Is(err, ErrNotPlain) {
		t.Errorf("a second name, while in use: %v", err)
	}
	must(t, os.Remove(second))
	must(t, f.Append(t.Context(), claim(7), []byte("+")))
	// The file itself becomes a link.
	must(t, os.Rename(path, path+".moved"))
	must(t, os.Symlink(path+".moved", path))
	if err := f.Replace(t.Context(), claim(7), []byte("x")); !errors.Is(err, ErrNotPlain) {
		t.Errorf("a link in its place: %v", err)
	}
}

func TestNotPlain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	must(t, os.Mkdir(at("folder"), 0o700))
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	must(t, os.Symlink(at("nowhere"), at("dangling")))
	must(t, os.Symlink(at("elsewhere"), at("linked"+sideSuffix)))
	must(t, os.WriteFile(at("elsewhere"), nil, 0o600))
	must(t, os.Symlink(at("nowhere"), at("half-linked"+sideSuffix)))
	must(t, os.Mkdir(at("folded"+sideSuffix), 0o700))
	for _, name := range []string{"folder", "pipe", "dangling", "linked", "half-linked", "folded"} {
		for _, adopt := range []bool{false, true} {
			if _, err := Open(t.Context(), at(name), Options{Adopt: adopt}); !errors.Is(err, ErrNotPlain) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if raw, err := os.ReadFile(at("elsewhere")); err != nil || len(raw) > 0 {
		t.Errorf("what a linked side file led to was written: %q, %v", raw, err)
	}
	if _, err := os.Lstat(at("nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a link led to was made: %v", err)
	}
	// New content of a crashed writer may be a trap.
	path, f := written(t)
	must(t, os.Symlink(at("elsewhere"), path+newSuffix))
	must(t, f.Replace(t.Context(), claim(5), []byte("again")))
	if raw, err := os.ReadFile(at("elsewhere")); err != nil || len(raw) > 0 || contentOf(t, path) != "again" {
		t.Errorf("it was written through a link: %q, %v", raw, err)
	}
}

// TestKeepsOwnerAndMode: a replaced file has the permissions and the owner that it had.
func TestKeepsOwnerAndMode(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f := mustOpen(t, path, Options{Mode: 0o666})
	must(t, f.Replace(t.Context(), claim(5), []byte("a")))
	for _, name := range []string{path, path + sideSuffix} {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o666 {
			t.Errorf("%s is made with %v, %v", name, info.Mode(), err)
		}
	}
	must(t, os.Chmod(path, 0o640))
	root := os.Geteuid() == 0
	if root {
		must(t, os.Chown(path, nobody, nobody-1))
	}
	must(t, f.Replace(t.Context(), claim(5), []byte("b")))
	info, err := os.Stat(path)
	must(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o640 || root && (owner.Uid != nobody || owner.Gid != nobody-1) {
		t.Errorf("%v, owner %d, group %d", info.Mode(), owner.Uid, owner.Gid)
	}
}

// TestReadOnlyFile: one that nobody may write is adopted and replaced, and stays one that nobody may write.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	must(t, os.WriteFile(path, []byte("a"), 0o600))
	must(t, os.Chmod(path, 0o444))
	f := mustOpen(t, path, Options{Adopt: true})
	must(t, f.Replace(t.Context(), claim(5), []byte("b")))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o444 || contentOf(t, path) != "b" {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestDenied: without the right to write the content stays as it is, also where all but its owner could be kept.
func TestDenied(t *testing.T) {
	t.Parallel()
	for what, forbid := range map[string]func(t *testing.T, path string){
		"the folder": func(t *testing.T, path string) { t.Helper(); must(t, os.Chmod(filepath.Dir(path), 0o555)) },
		"the side file": func(t *testing.T, path string) {
			t.Helper()
			must(t, errors.Join(os.Chmod(filepath.Dir(path), 0o777), os.Chmod(path+sideSuffix, 0o444)))
		},
		"the owner": func(t *testing.T, path string) { // nobody but root may give a file away
			t.Helper()
			must(t, os.Chmod(filepath.Dir(path), 0o777))
			if os.Geteuid() != 0 {
				must(t, os.Chmod(path+sideSuffix, 0o444)) // a file of another owner cannot be made
			}
		},
	} {
		path := fresh(t)
		folder := filepath.Dir(path)
		f := mustOpen(t, path, Options{Mode: 0o666})
		must(t, f.Replace(t.Context(), claim(5), []byte("five")))
		must(t, os.Chmod(filepath.Dir(folder), 0o755))
		forbid(t, path)
		cmd, err := command(orders{Path: path, Op: "replace", Token: 7, Data: "seven", Nobody: true})
		must(t, err)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitDenied {
			t.Errorf("%s: %d, %v, %s", what, code, err, out)
		}
		if got := contentOf(t, path); got != "five" {
			t.Errorf("%s: the content became %q", what, got)
		}
		must(t, os.Chmod(folder, 0o755))
		if left, err := filepath.Glob(path + newSuffix); err != nil || left != nil {
			t.Errorf("%s: left behind: %q, %v", what, left, err)
		}
	}
}

func TestNoLocksNoSync(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*parts)
		kind   error
	}{
		"a kernel that offers no locks": {func(p *parts) { p.lock = func(*os.File, int) (bool, error) { return false, unix.ENOLCK } }, ErrNoLocks},
		"a folder that takes no fsync":  {func(p *parts) { p.syncFolder = func(string) error { return unix.EINVAL } }, ErrNoSync},
		"a disk that fails":             {func(p *parts) { p.syncFolder = func(string) error { return unix.EIO } }, ErrIO},
		"a full disk":                   {func(p *parts) { p.sync = func(*os.File) error { return unix.ENOSPC } }, ErrFull},
		"a read-only one":               {func(p *parts) { p.create = func(string) (*os.File, error) { return nil, unix.EROFS } }, ErrDenied},
	} {
		p := realParts()
		c.change(&p)
		if _, err := open(t.Context(), fresh(t), Options{}, p); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", what, err, c.kind)
		}
	}
}

// TestGoneWaitersLeaveNothing: callers who stop waiting for a lock that somebody keeps leave neither a lock nor a goroutine behind.
func TestGoneWaitersLeaveNothing(t *testing.T) {
	path, f := written(t)
	entered, end := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- f.Update(context.WithoutCancel(t.Context()), claim(7), func(old []byte) ([]byte, error) {
			close(entered)
			<-end
			return old, nil
		})
	}()
	<-entered
	before := runtime.NumGoroutine()
	var locks atomic.Int64
	p := realParts()
	lock, unlock := p.lock, p.unlock
	p.lock = func(side *os.File, which int) (bool, error) {
		had, err := lock(side, which)
		if had {
			locks.Add(1)
		}
		return had, err
	}
	p.unlock = func(side *os.File, which int) error { locks.Add(-1); return unlock(side, which) }
	for range 50 {
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := open(soon, path, Options{}, p); !errors.Is(err, ErrBusy) {
			t.Errorf("opened while another has the lock: %v", err)
		}
		cancel()
	}
	if n := locks.Load(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	if n := runtime.NumGoroutine() - before; n > 5 { // those of a timer may be about to end
		t.Errorf("%d goroutines are left", n)
	}
	close(end)
	must(t, <-done)
}
