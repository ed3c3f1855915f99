package sqlite

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/lease"
)

// systemRoles are parts for which a child needs this system.
func systemRoles() map[string]func(context.Context, *stage) error {
	return map[string]func(context.Context, *stage) error{
		"mounter":        playMounter,
		"read-only disk": playReadOnlyDisk,
		"full disk":      playFullDisk,
		"io error":       playIOError,
		"op full disk":   playOpFullDisk,
		"op io error":    playOpIOError,
		"hold full disk": playHoldFullDisk,
		"hold io error":  playHoldIOError,
		"mail full disk": playMailFullDisk,
		"mail io error":  playMailIOError,
	}
}

// unprivileged starts a child to whom file permissions mean something, also when the test runs as root. The
// folder is made reachable for it.
func unprivileged(t *testing.T, folder string) func(*exec.Cmd) {
	t.Helper()
	return func(cmd *exec.Cmd) {
		if os.Geteuid() != 0 {
			return
		}
		const nobody = 65534
		if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // made by TempDir for its owner alone
			t.Fatal(err)
		}
		err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, nobody, nobody))
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = "/proc/self/exe" // the binary itself lies where only root can go
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// What cannot be written is refused by one kind of error that names it, and nothing is left behind.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		adjust func(t *testing.T, path string)
	}{
		{"file", func(t *testing.T, path string) { t.Helper(); chmod(t, path, 0o400) }},
		{"side file", func(t *testing.T, path string) { t.Helper(); chmod(t, path+"-tenure", 0o400) }},
		{"folder", func(t *testing.T, path string) { t.Helper(); chmod(t, filepath.Dir(path), 0o500) }},
		{"folder of a new file", func(t *testing.T, path string) {
			t.Helper()
			for _, suffix := range []string{"", "-tenure"} {
				if err := os.Remove(path + suffix); err != nil {
					t.Fatal(err)
				}
			}
			chmod(t, filepath.Dir(path), 0o500)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			shutDown(t, openPath(t, path))
			c.adjust(t, path)
			child := start(t, "opener", job{Path: path}, unprivileged(t, filepath.Dir(path)))
			says := child.hear("refused other,read_only")
			if !strings.Contains(says, path) {
				t.Errorf("the error does not name the file: %s", says)
			}
			chmod(t, filepath.Dir(path), 0o700)
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// ownDisks starts the child in a mount namespace of its own, where it may mount. Where the system forbids that, it says so.
func ownDisks(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	return func(cmd *exec.Cmd) {
		attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			attr.Cloneflags |= syscall.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		cmd.SysProcAttr = attr
	}
}

// mayMount reports whether a child of this process may have disks of its own. Some containers forbid it; the
// portable tests of full and read-only files are run there all the same.
func mayMount(t *testing.T) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=mounter", jobVariable+`={"Path":`+strconv.Quote(t.TempDir())+`}`)
	ownDisks(t)(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("no disks of one's own here: %v: %s", err, out)
	}
	return err == nil
}

// mountDisk mounts a small disk in memory at the job's folder.
func mountDisk(folder string, kib int) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+strconv.Itoa(kib)+"k")
}

func playMounter(_ context.Context, st *stage) error { return mountDisk(st.job.Path, 64) }

func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	if mayMount(t) {
		start(t, "read-only disk", job{Path: t.TempDir()}, ownDisks(t)).hear("done")
	}
}

func playReadOnlyDisk(ctx context.Context, st *stage) error {
	if err := mountDisk(st.job.Path, 1024); err != nil {
		return err
	}
	for _, path := range []string{"old.db", "new.db"} {
		path = filepath.Join(st.job.Path, path)
		if strings.HasSuffix(path, "old.db") {
			s, err := Open(ctx, Config{Path: path})
			if err != nil {
				return err
			}
			if err := s.Shutdown(ctx); err != nil {
				return err
			}
		}
		if err := unix.Mount("", st.job.Path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
		if _, err := Open(ctx, Config{Path: path}); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), path) {
			return errors.New("opened on a read-only disk: " + kindsOf(err) + ": " + err.Error())
		}
	}
	return nil
}

// A disk that fills up: typed, nothing acknowledged is lost, and the store goes on when there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if mayMount(t) {
		start(t, "full disk", job{Path: t.TempDir()}, ownDisks(t)).hear("done")
	}
}

func playFullDisk(ctx context.Context, st *stage) error {
	if err := mountDisk(st.job.Path, 8192); err != nil {
		return err
	}
	filler := filepath.Join(st.job.Path, "filler")
	fill := func(leave int64) error {
		var fs unix.Statfs_t
		if err := unix.Statfs(st.job.Path, &fs); err != nil {
			return err
		}
		free := int64(fs.Bfree)*fs.Bsize - leave
		return os.WriteFile(filler, make([]byte, max(0, free)), 0o600)
	}
	if err := fill(0); err != nil {
		return err
	}
	other := filepath.Join(st.job.Path, "other.db")
	if _, err := Open(ctx, Config{Path: other}); !errors.Is(err, ErrFull) {
		return errors.New("making a file on a full disk: " + kindsOf(err))
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	st.job.Path = filepath.Join(st.job.Path, "t.db")
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	if err := fill(256 << 10); err != nil {
		return err
	}
	granted := 0
	for ; granted < 20_000; granted++ {
		if err = a.take(ctx, "name/"+strconv.Itoa(granted)); err != nil {
			break
		}
	}
	if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, ErrFull) {
		return errors.New("on a full disk: " + kindsOf(err) + ": " + errText(err))
	}
	if _, err := a.store.Get(ctx, "name/0"); err != nil {
		return err // reading goes on
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	if err := a.take(ctx, "after"); err != nil {
		return err
	}
	if err := a.store.Shutdown(ctx); err != nil {
		return err
	}
	if a.store, err = Open(ctx, Config{Path: st.job.Path}); err != nil {
		return err
	}
	for i := range granted {
		if err := a.checkHeld(ctx, "name/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return errors.Join(a.checkHeld(ctx, "after"), a.store.Shutdown(ctx))
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// checkHeld looks whether an acknowledged grant is in the file.
func (a *actor) checkHeld(ctx context.Context, name string) error {
	info, err := a.store.Get(ctx, name)
	if err == nil && (!info.Held || info.Token != a.claims[name].Token) {
		err = errors.New("lost: " + a.claims[name].String())
	}
	return err
}

// A write that fails inside COMMIT leaves the outcome open: the caller is told so, the store stops, and opening
// it again settles it.
func TestIOErrorInCommit(t *testing.T) {
	t.Parallel()
	start(t, "io error", job{Path: newPath(t)}).hear("done")
}

func playIOError(ctx context.Context, st *stage) error {
	signal.Ignore(unix.SIGXFSZ)
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	if err := a.take(ctx, "before"); err != nil {
		return err
	}
	id := a.ids.New()
	request := lease.AcquireRequest{Session: a.session, ID: id, Names: []string{"during"}}
	if err := a.logCannotGrow(func() error { return a.failCommit(ctx, request) }); err != nil {
		return err
	}
	if err := a.take(ctx, "after"); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "restart") {
		return errors.New("after an I/O error in COMMIT: " + kindsOf(err) + ": " + errText(err))
	}
	if err := a.store.Shutdown(ctx); err != nil {
		return err
	}
	if a.store, err = Open(ctx, Config{Path: st.job.Path}); err != nil {
		return err
	}
	if err := a.checkHeld(ctx, "before"); err != nil {
		return err
	}
	if _, err := a.store.Acquire(ctx, request); err != nil { // the same id: settled either way
		return err
	}
	return errors.Join(a.take(ctx, "after"), a.store.Shutdown(ctx))
}

// logCannotGrow runs f while writes behind the end of the log fail: not as on a full disk, but as an I/O error.
func (a *actor) logCannotGrow(f func() error) error {
	info, err := os.Stat(a.job.Path + "-wal")
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	tight := unix.Rlimit{Cur: uint64(info.Size()), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &tight); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
}

// failCommit sends one batch: its first request breaks the transaction, so that they run singly; the COMMIT of
// the second meets the I/O error; the third must be answered all the same.
func (a *actor) failCommit(ctx context.Context, req lease.AcquireRequest) error {
	release := make(chan struct{})
	batch := []*request{
		{op: "gate", do: func(*batch) error { <-release; return nil }},
		{op: "broken", do: func(b *batch) error { return b.fail(errors.New("broken on purpose")) }},
		{op: "acquire", id: req.ID, do: func(b *batch) error { _, err := b.acquire(req); return err }},
		{op: "renew", do: func(b *batch) error { _, err := b.renew(lease.RenewRequest{Session: a.session}); return err }},
	}
	for i, r := range batch {
		r.done = make(chan error, 1)
		if err := a.store.writer.enqueue(r, false); err != nil {
			return err
		}
		if i == 0 { // it is a batch of its own
			for !a.store.writer.idle() {
				runtime.Gosched()
			}
		}
	}
	close(release)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, want := range []error{nil, lease.ErrUnavailable, lease.ErrUnknown, lease.ErrUnavailable} {
		select {
		case err := <-batch[i].done:
			if !errors.Is(err, want) {
				return errors.New(batch[i].op + " beside an I/O error in COMMIT: " + kindsOf(err) + ": " + errText(err))
			}
		case <-ctx.Done():
			return errors.New(batch[i].op + " was never answered")
		}
	}
	return nil
}
