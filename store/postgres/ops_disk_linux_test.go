package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// diskVariable is the folder on which a child of TestFullDiskOfOperations mounts a small disk. The child has mounts of its own.
const diskVariable = "TENURE_TEST_SMALL_DISK"

const diskSize = 256 << 20

// TestFullDiskOfOperations: the disk of the server fills up, first for tables and then for the log, before operations that stand at each of their transitions. What cannot be written is refused as
// unavailable, or unknown where the server ends over it; nothing is half done, nothing that was told is lost, and with room again everything goes on.
//
// The disk is of a child with mounts of its own, which the system allows to root alone; elsewhere the test says so, and shows nothing.
func TestFullDiskOfOperations(t *testing.T) {
	if folder := os.Getenv(diskVariable); folder != "" {
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d,mode=1777", diskSize)); err != nil {
			t.Fatal(err)
		}
		fullDisk(t, folder)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("no disks of one's own here: this needs root, and was not tried")
		return
	}
	folder, err := os.MkdirTemp("/tmp", "tenure-disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(folder) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestFullDiskOfOperations$", "-test.timeout=110s", "-test.v")
	cmd.Env = append(os.Environ(), diskVariable+"="+folder, "TMPDIR="+folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Logf("no disks of one's own here: %v", err)
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// fillDisk leaves nothing of the disk.
func fillDisk(folder string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "filler"), make([]byte, int64(fs.Bfree)*fs.Bsize), 0o600) //nolint:gosec // a block's size is small
}

// untilRefused submits small operations until one is refused, so that no page of the table has room, and returns how many were told, and the refusal.
func (f *office) untilRefused(ctx context.Context) (n int, err error) {
	for range 10_000 {
		if _, err = f.ops.Submit(ctx, submission(fmt.Sprint("a", n))); err != nil {
			break
		}
		n++
	}
	return n, err
}

func fullDisk(t *testing.T, folder string) {
	t.Helper()
	ctx := t.Context()
	r := newOwnRig(t, map[string]string{"min_wal_size": "32MB", "max_wal_size": "64MB", "restart_after_crash": "off"}, Options{})
	f := &office{r, r.store.Operations()}
	all := transitions()
	f.ready(ctx, all)
	if err := f.exec(ctx, `VACUUM tenure.operation`); err != nil { // so that submissions take the room of dead rows
		t.Fatal(err)
	}
	if err := fillDisk(folder); err != nil {
		t.Fatal(err)
	}
	told, err := f.untilRefused(ctx)
	if !errors.Is(err, operation.ErrUnavailable) && !errors.Is(err, operation.ErrUnknown) {
		t.Fatalf("on a full disk, after %d submissions: %v", told, err)
	}
	t.Logf("%d submissions, then: %v", told, err)
	if refused := f.eachOnFullDisk(ctx, all); refused < len(all)/2 {
		t.Errorf("%d transitions were refused: this test shows little", refused)
	}
	for range 8 { // each begins another part of the log, for which there is no room
		err = f.exec(ctx, `SELECT pg_logical_emit_message(true, 'tenure', 'x'), pg_switch_wal()`)
		if err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("the log has room: this test shows nothing")
	}
	t.Logf("the server, whose log cannot grow: %v", err)
	f.eachOnFullDisk(ctx, all)
	if err := os.Remove(filepath.Join(folder, "filler")); err != nil {
		t.Fatal(err)
	}
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for f.server.Control().Running() { // it ends by itself; the test's own time bounds this
		<-ticks.C
	}
	f.restart()
	for i := range told {
		id := fmt.Sprint("a", i)
		err := f.patientlyOp(ctx, func() error { _, err := f.ops.Get(ctx, id); return err })
		if err != nil {
			t.Fatalf("%s was told: %v", id, err)
		}
	}
	for _, x := range all {
		if got := tellOp(f.ops.Get(ctx, x.id)); got != x.from && got != x.to {
			t.Errorf("%s after the full disk: %q; want %q or %q", x.id, got, x.from, x.to)
		}
	}
	f.finish(ctx, all)
}

// eachOnFullDisk tries every transition: it is made, or refused as a whole. It returns how many were refused.
func (f *office) eachOnFullDisk(ctx context.Context, all []transition) (refused int) {
	f.t.Helper()
	made, unknown := 0, 0
	for _, x := range all {
		switch err := x.call(ctx, f); {
		case err == nil, errors.Is(err, operation.ErrStale), errors.Is(err, operation.ErrDecided):
			made++
			if got := tellOp(f.ops.Get(ctx, x.id)); got != x.to && got != x.from { // a claim that finds nothing changes nothing
				f.t.Errorf("%s was made, and is %q; want %q", x.id, got, x.to)
			}
		case errors.Is(err, operation.ErrUnavailable):
			refused++
			if rec, err := f.ops.Get(ctx, x.id); err == nil || errors.Is(err, operation.ErrNotFound) {
				if got := tellOp(rec, err); got != x.from {
					f.t.Errorf("%s was refused, and is %q; want %q", x.id, got, x.from)
				}
			}
		case errors.Is(err, operation.ErrUnknown):
			unknown++
		default:
			f.t.Errorf("%s on a full disk: %v", x.id, err)
		}
	}
	f.t.Logf("of %d transitions %d were made, %d refused, %d unknown", len(all), made, refused, unknown)
	return refused
}
