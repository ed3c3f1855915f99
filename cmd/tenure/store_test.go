package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func env(uid int, vars map[string]string) environment {
	return environment{getenv: func(name string) string { return vars[name] }, uid: uid}
}

// TestLocate: which file a URL, the environment and the default name.
func TestLocate(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	user := map[string]string{"HOME": "/home/u"}
	state := map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/state"}
	for _, c := range []struct {
		name, flag string
		uid        int
		vars       map[string]string
		path       string
		assumed    bool
	}{
		{"nothing", "", 1000, user, "/home/u/.local/state/tenure/tenure.db", true},
		{"nothing, root", "", 0, user, "/var/lib/tenure/tenure.db", true},
		{"nothing, state folder", "", 1000, state, "/state/tenure/tenure.db", true},
		{"nothing, state folder, root", "", 0, state, "/state/tenure/tenure.db", true},
		{"relative state folder is ignored", "", 1000, map[string]string{"HOME": "/h", "XDG_STATE_HOME": "rel"}, "/h/.local/state/tenure/tenure.db", true},
		{"default by name", "sqlite:", 1000, user, "/home/u/.local/state/tenure/tenure.db", false},
		{"environment", "", 1000, map[string]string{"TENURE_STORE": "sqlite:/x/y.db"}, "/x/y.db", false},
		{"flag before environment", "sqlite:/a.db", 1000, map[string]string{"TENURE_STORE": "sqlite:/x/y.db"}, "/a.db", false},
		{"relative", "sqlite:a/b.db", 1000, user, here + "/a/b.db", false},
		{"absolute with slashes", "sqlite:///a/b.db", 1000, user, "/a/b.db", false},
		{"taken as it is", "sqlite:/a b%20c?d=e#f.db", 1000, user, "/a b%20c?d=e#f.db", false},
	} {
		got, err := env(c.uid, c.vars).locate(c.flag)
		if err != nil || got.path != c.path || got.assumed != c.assumed || got.url != "sqlite:"+c.path {
			t.Errorf("%s: got %+v, %v; want %s, assumed %v", c.name, got, err, c.path, c.assumed)
		}
		again, err := env(c.uid, nil).locate(got.url)
		if err != nil || again.path != got.path {
			t.Errorf("%s: %s names %s, %v", c.name, got.url, again.path, err)
		}
	}
}

// TestLocateBad: what names no store is a mistake in the command line.
func TestLocateBad(t *testing.T) {
	for _, flag := range []string{"redis://h", "postgres:", "/path", "sqlite", "SQLITE:/x", "sqlite://host/x", "sqlite::memory:", "sqlite:/x/", "sqlite:a\x00b", "file:x", "memory:"} {
		_, err := env(1000, nil).locate(flag)
		var usage *usageError
		if !errors.As(err, &usage) {
			t.Errorf("%q: got %v, want a usage error", flag, err)
		}
	}
	if _, err := env(1000, nil).locate("redis://h"); !strings.Contains(err.Error(), "sqlite:PATH") {
		t.Errorf("an unknown kind is not told which are known: %v", err)
	}
	if _, err := env(1000, nil).locate(""); err == nil {
		t.Error("a default file was found without HOME")
	}
}

// TestOpenStore: missing folders are made for this user alone; what cannot be opened is a storeError.
func TestOpenStore(t *testing.T) {
	dir := t.TempDir()
	l := location{path: filepath.Join(dir, "new", "deep", "a b%20c?d=e#f.db")}
	s, err := openStore(t.Context(), l, openOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, made := range []string{"new", "new/deep"} {
		info, err := os.Stat(filepath.Join(dir, made))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", made, info.Mode(), err)
		}
	}
	if _, err := os.Stat(l.path); err != nil {
		t.Error(err)
	}
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, []byte("not a database, and long enough to see it"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{blocked, filepath.Join(blocked, "t.db"), dir} {
		_, err := openStore(t.Context(), location{path: path}, openOptions{})
		var failed *storeError
		if !errors.As(err, &failed) || exitCode(err) != exitNoStore {
			t.Errorf("%s: got %v, want a storeError", path, err)
		}
	}
}
