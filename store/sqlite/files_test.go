package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// Every file that is not the authority's is refused by name, and is the same afterwards, byte for byte.
func TestOpenLeavesForeignFileAlone(t *testing.T) {
	t.Parallel()
	text := func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Repeat("dear diary, ", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	statements := func(statements ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) { t.Helper(); plainExec(t, path, statements...) }
	}
	tenure := func(statements ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			shutDown(t, openPath(t, path))
			plainExec(t, path, statements...)
		}
	}
	cases := []struct {
		name string
		make func(*testing.T, string)
		kind error
		says string
	}{
		{"no database", text, ErrForeignFile, "no intact SQLite database"},
		{"tables of another program", statements(`CREATE TABLE bookmarks (url TEXT)`), ErrForeignFile, "Adopt"},
		{"application id of another program", statements(`PRAGMA application_id = 99`), ErrForeignFile, "Adopt"},
		{"another program's, in WAL mode", statements(`PRAGMA journal_mode = WAL`, `CREATE TABLE bookmarks (url TEXT)`), ErrForeignFile, "Adopt"},
		{"newer schema", tenure(`UPDATE tenure_schema SET version = ` + strconv.Itoa(SchemaVersion+1)), ErrNewerSchema, "use a newer tenure"},
		{"no version", tenure(`DELETE FROM tenure_schema`), ErrForeignFile, "tenure_schema is empty"},
		{"no authority", tenure(`DELETE FROM tenure_authority`), ErrForeignFile, "tenure_authority is empty"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			c.make(t, path)
			before := contents(t, path)
			_, err := Open(t.Context(), Config{Path: path})
			wantKind(t, err, c.kind, path, c.says)
			if contents(t, path) != before {
				t.Error("the refused file was changed")
			}
			for _, suffix := range []string{"-wal", "-shm", "-journal"} {
				if exists(path + suffix) {
					t.Errorf("a %s file was left beside the refused file", suffix)
				}
			}
		})
	}
}

// Adopting keeps what the application has, its user_version and application_id included.
func TestAdoptKeepsApplication(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	plainExec(t, path, `CREATE TABLE notes (text TEXT)`, `INSERT INTO notes VALUES ('kept')`, `PRAGMA user_version = 7`, `PRAGMA application_id = 99`)
	s := openWith(t, Config{Path: path, Adopt: true})
	join(t, s, time.Minute).take("a")
	id := s.Authority()
	shutDown(t, s)
	for query, want := range map[string]string{
		`SELECT text FROM notes`: "kept", `PRAGMA user_version`: "7", `PRAGMA application_id`: "99", `PRAGMA integrity_check`: "ok",
	} {
		if got := plainValue(t, path, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if again := openPath(t, path); again.Authority() != id { // an adopted file needs no Adopt any more
		t.Error("the authority's id changed")
	}
}

// A fresh file says whose it is.
func TestFreshFileIsMarked(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	shutDown(t, openPath(t, path))
	if got := plainValue(t, path, `PRAGMA application_id`); got != strconv.Itoa(applicationID) {
		t.Errorf("application id %s", got)
	}
}

func TestOpenRefusesBadPath(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, path := range []string{"", "with\x00nul"} {
		_, err := Open(t.Context(), Config{Path: path})
		wantKind(t, err, lease.ErrInvalid, "path")
	}
	missing := filepath.Join(folder, "none", "t.db")
	_, err := Open(t.Context(), Config{Path: missing})
	wantKind(t, err, ErrReadOnly, missing, "folder")
	wantKind(t, err, fs.ErrNotExist)
	if exists(filepath.Dir(missing)) {
		t.Error("the folder was made")
	}
	_, err = Open(t.Context(), Config{Path: folder})
	var fileErr *FileError
	if !errors.As(err, &fileErr) {
		t.Errorf("a folder for a path: %v", err)
	}
}

// One database has one side file, by whatever link it is reached: else there would be two turnstiles.
func TestSymlinkSharesSideFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	direct := openPath(t, path)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	linked := openPath(t, link)
	if linked.Path() != direct.Path() || linked.current != direct.current {
		t.Errorf("paths %s and %s, incarnations %s and %s", linked.Path(), direct.Path(), linked.current, direct.current)
	}
	if exists(link + "-tenure") {
		t.Error("the link has a side file of its own")
	}
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Symlink(filepath.Dir(path), folder); err != nil {
		t.Fatal(err)
	}
	if through := openPath(t, filepath.Join(folder, "t.db")); through.Path() != direct.Path() {
		t.Errorf("through a linked folder: %s", through.Path())
	}
}

// A link whose target does not exist yet leads to the target, as it would for any program that opens it.
func TestDanglingSymlinkMakesItsTarget(t *testing.T) {
	t.Parallel()
	target := newPath(t)
	folder := t.TempDir()
	relative, err := filepath.Rel(folder, target)
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range []string{target, relative} {
		link := filepath.Join(folder, strconv.Itoa(i))
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // the first round made it
			for _, suffix := range []string{"", "-tenure"} {
				if err := os.Remove(target + suffix); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := openPath(t, link)
		if want, err := filepath.EvalSymlinks(target); err != nil || s.Path() != want {
			t.Errorf("link to %s: store at %s, want %s (%v)", to, s.Path(), want, err)
		}
		if exists(link + "-tenure") {
			t.Error("the link has a side file of its own")
		}
		shutDown(t, s)
	}
	loop := filepath.Join(folder, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: loop}); err == nil {
		t.Error("a link to itself was opened")
	}
}

// Characters that mean something in a URI are characters of the name.
func TestOddFileNames(t *testing.T) {
	t.Parallel()
	names := []string{"a b.db", "ä.db", "100%.db", "a%20b.db", "x#y.db", ":memory:", "file:x", "it's.db", "a+b&c=d.db"}
	if runtime.GOOS != "windows" {
		names = append(names, "what?_pragma=synchronous(OFF)", "back\\slash", "new\nline")
	}
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name)
		s := openPath(t, path)
		if got := join(t, s, time.Minute).take("a").Token; got != 1 {
			t.Errorf("%q: token %d", name, got)
		}
		shutDown(t, s)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q: nothing in the file of that name: %v", name, err)
		}
	}
}

// What durability rests on, by the numbers that SQLite gives it: not by the table that the store reads.
func TestConnectionsAreDurable(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	for setting, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "trusted_schema": "0", "busy_timeout": "0"} {
		var got string
		err := s.writer.do(t.Context(), &request{op: "ask", do: func(*batch) error {
			return s.conn.QueryRowContext(t.Context(), `PRAGMA `+setting).Scan(&got)
		}}, false)
		if err != nil || got != want {
			t.Errorf("the writer's %s is %s, want %s (%v)", setting, got, want, err)
		}
	}
}

// SQLite takes a misspelt value of a setting without a word. What counts is what reads back.
func TestSettingsAreReadBack(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	for _, p := range pragmas() {
		if p.name == "journal_mode" {
			continue // a property of the file: see below
		}
		wrong := map[string]string{"synchronous": "bogus", "foreign_keys": "bogus", "trusted_schema": "ON"}[p.name]
		text := strings.Replace(dsn(path, openBusy, false), p.name+"%28"+p.value+"%29", p.name+"%28"+wrong+"%29", 1)
		db, err := s.openPool(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Conn(t.Context())
		wantKind(t, err, ErrSettings, p.name)
		db.Close()
	}
}

// The same holds for every connection that reads, not for the first alone.
func TestSettingsAreReadBackOnEveryConnection(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	for range readers {
		conn, err := s.readDB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.ExecContext(t.Context(), `DELETE FROM tenure_lease`); err == nil {
			t.Error("a connection for reading writes")
		}
		for _, p := range pragmas() {
			var got string
			if err := conn.QueryRowContext(t.Context(), `PRAGMA `+p.name).Scan(&got); err != nil || got != p.want {
				t.Errorf("%s is %s, want %s (%v)", p.name, got, p.want, err)
			}
		}
	}
}

func TestOldSQLiteIsRefused(t *testing.T) {
	t.Parallel()
	for version, older := range map[string]bool{"3.51.3": false, "3.51.2": true, "3.9.9": true, "3.54.1": false, "4.0.0": false, "3.51": true} {
		if versionLess(version, minVersion) != older {
			t.Errorf("%s older than %s: want %v", version, minVersion, older)
		}
	}
}
