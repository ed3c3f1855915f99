package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// vacuumCopy makes a copy of the file as guarantees.md tells people to.
func vacuumCopy(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db")
	plainExec(t, path, `VACUUM INTO '`+to+`'`)
	return to
}

// restore puts the copy in the place of the file.
func restore(t *testing.T, from, path string) {
	t.Helper()
	if err := os.Rename(from, path); err != nil {
		t.Fatal(err)
	}
}

// grantCycles takes and drops a name n times and returns the highest token.
func grantCycles(p *party, name string, n int) fence.Token {
	p.t.Helper()
	var last fence.Token
	for range n {
		c := p.take(name)
		if c.Token <= last {
			p.t.Fatalf("token %d after %d", c.Token, last)
		}
		last = c.Token
		p.drop(c)
	}
	return last
}

// issued reads the counter as it stands in the file.
func issued(t *testing.T, path string) fence.Token {
	t.Helper()
	n, err := strconv.ParseInt(plainValue(t, path, `SELECT issued FROM tenure_authority`), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fence.Token(n)
}

// A copy that was made long ago takes the file's place while nobody has it open: no token repeats.
func TestRestoredWhileClosedRepeatsNoToken(t *testing.T) {
	t.Parallel()
	for _, jumps := range []bool{true, false} {
		t.Run("jumps="+strconv.FormatBool(jumps), func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s := openPath(t, path)
			p := join(t, s, time.Minute)
			grantCycles(p, "a", 10)
			shutDown(t, s)
			copied := vacuumCopy(t, path)

			s = openPath(t, path)
			p = join(t, s, time.Minute)
			last := grantCycles(p, "a", 50)
			shutDown(t, s)
			restore(t, copied, path)

			s = openPath(t, path)
			if !jumps { // the broken variant: the opener takes itself for the incarnation that the copy knows
				s.current = storedIncarnation(t, path)
			}
			next := join(t, s, time.Minute).take("a").Token
			if repeats := next <= last; repeats == jumps {
				t.Errorf("token %d was issued after %d", next, last)
			}
		})
	}
}

// storedIncarnation is that of the last grant in the file.
func storedIncarnation(t *testing.T, path string) fence.ID {
	t.Helper()
	db := plainDB(t, path, "")
	defer db.Close()
	var raw []byte
	if err := db.QueryRowContext(t.Context(), `SELECT incarnation FROM tenure_authority`).Scan(&raw); err != nil {
		t.Fatal(err)
	}
	return fence.ID(raw)
}

// While a process has the file open, a restored one is not touched; that process stops at its next write.
func TestRestoredByRenameWhileOpen(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	shutDown(t, openPath(t, path))
	copied := vacuumCopy(t, path)
	before := contents(t, copied)
	worker := start(t, "worker", job{Path: path})
	worker.hear("ready")
	worker.tell("take a")
	worker.hear("ok")

	restore(t, copied, path)
	_, err := Open(t.Context(), Config{Path: path})
	wantKind(t, err, ErrReplaced, "stop them all", "pid "+strconv.Itoa(worker.cmd.Process.Pid))
	if contents(t, path) != before {
		t.Error("the restored file was changed")
	}
	for _, order := range []string{"renew", "take b", "get a", "renew"} {
		worker.tell(order)
		worker.hear("refused unavailable,replaced")
	}
	if contents(t, path) != before {
		t.Error("the restored file was changed by the process that had the former one")
	}
	worker.stdin.Close()
	worker.hear("done")
	worker.kill()

	// What the former file's log still held went with it; where it was left, the opener says so.
	for _, suffix := range []string{"-wal", "-shm"} {
		if exists(path + suffix) {
			_, err = Open(t.Context(), Config{Path: path})
			wantKind(t, err, ErrStaleLog, path+"-wal", path+"-shm")
			for _, former := range []string{"-wal", "-shm"} {
				if err := os.Remove(path + former); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}
	}
	if contents(t, path) != before {
		t.Error("the restored file was changed by a refused opener")
	}
	if got := join(t, openPath(t, path), time.Minute).take("a").Token; got <= 1 {
		t.Errorf("token %d was issued again", got)
	}
}

// The reason for the check: an opener that does not compare the files reads the former file's log as the
// restored file's.
func TestRestoredByRenameUncheckedMixesFiles(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	last := grantCycles(join(t, s, time.Minute), "a", 3)
	shutDown(t, s)
	copied := vacuumCopy(t, path)
	worker := start(t, "worker", job{Path: path})
	worker.hear("ready")
	worker.tell("take a")
	worker.hear("ok")
	restore(t, copied, path)
	if got := issued(t, path); got <= last {
		t.Errorf("the restored file, opened unchecked, says that token %d was the last: the log was not mixed in, and this test shows nothing", got)
	}
}

// killedWorker grants a name in a process and kills that, so that a log stays; it returns the token.
func killedWorker(t *testing.T, path string) fence.Token {
	t.Helper()
	worker := start(t, "worker", job{Path: path})
	worker.hear("ready")
	worker.tell("take killed")
	token, err := fence.ParseToken(worker.hear("ok"))
	if err != nil {
		t.Fatal(err)
	}
	worker.kill()
	if !exists(path + "-wal") {
		t.Fatal("the killed process left no log: this test shows nothing")
	}
	return token
}

// A file that was restored beside the log of a killed process is refused until the log is gone.
func TestRestoredBesideStaleLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	shutDown(t, openPath(t, path))
	copied := vacuumCopy(t, path)
	last := killedWorker(t, path)
	restore(t, copied, path)

	before, log := contents(t, path), contents(t, path+"-wal")
	for range 2 { // a refusal leaves everything as it is, so the second is like the first
		_, err := Open(t.Context(), Config{Path: path})
		wantKind(t, err, ErrStaleLog, "remove", path+"-wal", path+"-shm", path+"-tenure")
	}
	if contents(t, path) != before || contents(t, path+"-wal") != log {
		t.Error("a refused opener changed the file or its log")
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	s := openPath(t, path)
	if got := join(t, s, time.Minute).take("killed").Token; got <= last {
		t.Errorf("token %d was issued after %d", got, last)
	}
	shutDown(t, s)
	if got := plainValue(t, path, `PRAGMA integrity_check`); got != "ok" {
		t.Error(got)
	}
}

// The reason for the check: opened all the same, the file takes the log for its own.
func TestRestoredBesideStaleLogUncheckedMixesFiles(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	shutDown(t, openPath(t, path))
	copied := vacuumCopy(t, path)
	last := killedWorker(t, path)
	restore(t, copied, path)
	if got := issued(t, path); got != last {
		t.Errorf("the restored file, opened unchecked, says that token %d was the last, not %d: this test shows nothing", got, last)
	}
}

// A folder that was copied whole, log included, has all: the advice for that case keeps what was acknowledged.
func TestFolderCopiedWithLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	last := killedWorker(t, path)
	moved := newPath(t)
	for _, suffix := range []string{"", "-wal", "-tenure"} {
		if err := os.WriteFile(moved+suffix, []byte(contents(t, path+suffix)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(t.Context(), Config{Path: moved})
	wantKind(t, err, ErrStaleLog, "copied together", moved+"-tenure")
	if err := os.Remove(moved + "-tenure"); err != nil {
		t.Fatal(err)
	}
	s := openPath(t, moved)
	info, err := s.Get(t.Context(), "killed")
	if err != nil || info.Token != last {
		t.Errorf("the acknowledged grant of token %d is not there: %+v, %v", last, info, err)
	}
}

// Device numbers change between two mounts of one disk; the log in the same folder is no less this file's.
func TestLogIsKeptWhenOnlyTheDeviceNumberChanged(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	last := killedWorker(t, path)
	side, err := openSideFile(path+"-tenure", nil)
	if err != nil {
		t.Fatal(err)
	}
	known, _, err := side.readRecord()
	if err != nil {
		t.Fatal(err)
	}
	known.file.device++
	if err := side.writeRecord(known); err != nil {
		t.Fatal(err)
	}
	if err := side.close(); err != nil {
		t.Fatal(err)
	}
	info, err := openPath(t, path).Get(t.Context(), "killed")
	if err != nil || info.Token != last {
		t.Errorf("the acknowledged grant of token %d is not there: %+v, %v", last, info, err)
	}
}

// Content copied over the open file keeps its inode: nothing can see it. The token comes again, unless the
// operator raises the epoch, as guarantees.md says.
func TestCopiedOverWhileOpen(t *testing.T) {
	t.Parallel()
	for _, raise := range []bool{false, true} {
		t.Run("raise="+strconv.FormatBool(raise), func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s := openPath(t, path)
			p := join(t, s, time.Minute)
			grantCycles(p, "a", 3)
			plainExec(t, path, `PRAGMA wal_checkpoint(TRUNCATE)`) // all of it is in the file itself now
			copied := filepath.Join(t.TempDir(), "copy.db")
			start(t, "copy over", job{Source: path, Path: copied}).hear("done")
			last := grantCycles(p, "a", 3)
			plainExec(t, path, `PRAGMA wal_checkpoint(TRUNCATE)`)
			start(t, "copy over", job{Source: copied, Path: path}).hear("done")

			second := openPath(t, path) // joins the incarnation of the first, which still has the file open
			if raise {
				if _, err := second.RaiseEpoch(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			next := join(t, second, time.Minute).take("a").Token
			if repeats := next <= last; repeats == raise {
				t.Errorf("token %d was issued after %d", next, last)
			}
		})
	}
}

// A file that is deleted while open: its processes stop, and nobody else starts anew while they live.
func TestDeletedWhileOpen(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	p.take("a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path})
	wantKind(t, err, ErrReplaced, "stop them all")
	if exists(path) {
		t.Error("a new file was made beside one that is in use")
	}
	_, err = s.Get(t.Context(), "a")
	wantKind(t, err, ErrReplaced)
	for range 2 {
		wantKind(t, p.renew(), ErrReplaced, "not applied", "restart it")
	}
	shutDown(t, s)
	if exists(path + "-wal") {
		_, err := Open(t.Context(), Config{Path: path})
		wantKind(t, err, ErrStaleLog)
	}
}

// Without the side file the turn is nobody's, but the database is as safe as SQLite makes it, and tokens rise.
func TestSideFileDeletedWhileOpen(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	p := join(t, openPath(t, path), time.Minute)
	last := p.take("a").Token
	if err := os.Remove(path + "-tenure"); err != nil {
		t.Fatal(err)
	}
	q := join(t, openPath(t, path), time.Minute)
	for i := range 5 {
		for j, party := range []*party{p, q} {
			next := party.take("b/" + strconv.Itoa(2*i+j)).Token
			if next <= last {
				t.Fatalf("token %d after %d", next, last)
			}
			last = next
		}
	}
	if _, err := q.ask("a"); err == nil {
		t.Error("a held name was granted")
	}
}

// A file that was deleted and made anew often gets the same inode's number; its birth tells the two apart.
func TestRestoredUnderTheSameInodeBesideStaleLog(t *testing.T) {
	t.Parallel()
	for range 4 {
		path := newPath(t)
		shutDown(t, openPath(t, path))
		copied := contents(t, vacuumCopy(t, path))
		killedWorker(t, path)
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(copied), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Config{Path: path})
		wantKind(t, err, ErrStaleLog, "remove", path+"-wal")
	}
}

// Content that was copied over a closed file keeps the file's identity. Where the log of a crash then does not fit, the file is
// refused; that it always shows cannot be promised, and guarantees.md does not.
func TestCopiedOverBesideStaleLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	for i := range 300 { // enough for pages that the log does not hold
		p.take(fmt.Sprintf("early/%d", i))
	}
	shutDown(t, s)
	copied := contents(t, vacuumCopy(t, path))
	s = openPath(t, path)
	p = join(t, s, time.Minute)
	for i := range 300 {
		p.take(fmt.Sprintf("late/%d", i))
	}
	shutDown(t, s)
	killedWorker(t, path)
	if err := os.WriteFile(path, []byte(copied), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path})
	wantKind(t, err, ErrStaleLog, path+"-wal", "copy the backup again")
}
