package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

// store is what the commands need of an authority.
type store interface {
	lease.Store
	lease.Revoker
	lease.Lister
	lease.Pruner
	lease.EpochRaiser
	// Shutdown gives back what the process holds of the store. It ends no session.
	Shutdown(ctx context.Context) error
}

// openWait bounds the opening of a store: a stopped process that holds the turn would otherwise be waited for.
const openWait = 10 * time.Second

// location is a store that was named on the command line, in the environment, or by neither.
type location struct {
	url      string // as it would be given again: it may hold a password
	shown    string // the same for people and files, without one
	path     string // of the database file; empty for PostgreSQL and for a server
	postgres bool
	remote   bool // a server's
	assumed  bool // nobody named it
}

// environment is what the location depends on beside the URL.
type environment struct {
	getenv func(string) string
	uid    int
}

// schemes are the kinds of store that a URL may name, for error texts.
const schemes = "sqlite: (the default file), sqlite:PATH, sqlite:///ABSOLUTE/PATH, postgres://USER@HOST/DATABASE,\nhttp://HOST:PORT or https://HOST:PORT (tenure serve)"

// locate finds the store from the --store flag, else TENURE_STORE, else the default file.
func (e environment) locate(flag string) (location, error) {
	text, assumed := flag, false
	if text == "" {
		text = e.getenv("TENURE_STORE")
	}
	if text == "" {
		text, assumed = "sqlite:", true
	}
	scheme, rest, ok := strings.Cut(text, ":")
	if isPostgres(text) {
		return locatePostgres(text)
	}
	if isRemote(text) {
		return locateRemote(text)
	}
	if !ok || scheme != "sqlite" {
		return location{}, usagef("store %q: unknown kind of store; known are %s", withoutPassword(text), schemes)
	}
	path, err := e.sqlitePath(rest)
	if err != nil {
		return location{}, err
	}
	url := "sqlite:" + path
	return location{url: url, shown: url, path: path, assumed: assumed}, nil
}

// sqlitePath is the absolute path that stands after "sqlite:". It is taken as it is: nothing in it is decoded.
func (e environment) sqlitePath(rest string) (string, error) {
	switch {
	case rest == "":
		return e.defaultPath()
	case strings.HasPrefix(rest, "///"):
		rest = rest[len("//"):]
	case strings.HasPrefix(rest, "//"):
		return "", usagef("store \"sqlite:%s\": a file has no host; write sqlite:PATH or sqlite:///ABSOLUTE/PATH", rest)
	case strings.HasPrefix(rest, ":"):
		return "", usagef("store \"sqlite:%s\": a database in memory guards nothing; name a file", rest)
	}
	if strings.ContainsRune(rest, 0) || strings.HasSuffix(rest, "/") {
		return "", usagef("store %q: that is no file name", "sqlite:"+rest)
	}
	path, err := filepath.Abs(rest)
	if err != nil {
		return "", fmt.Errorf("store %q: %w", "sqlite:"+rest, err)
	}
	return path, nil
}

// defaultPath is $XDG_STATE_HOME/tenure/tenure.db; without that variable, or with a relative path in it, which the
// XDG specification says to ignore, /var/lib/tenure/tenure.db for root and ~/.local/state/tenure/tenure.db for others.
func (e environment) defaultPath() (string, error) {
	if state := e.getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "tenure", "tenure.db"), nil
	}
	if e.uid == 0 {
		return "/var/lib/tenure/tenure.db", nil
	}
	home := e.getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", usagef("no store was named, and neither XDG_STATE_HOME nor HOME says where the default file is; give --store sqlite:PATH")
	}
	return filepath.Join(home, ".local", "state", "tenure", "tenure.db"), nil
}

// notice says what a store that nobody named guards.
func (l location) notice() string {
	return fmt.Sprintf("no store named: using %s, which guards this user on this machine only (--store or TENURE_STORE names another)", l.path)
}

// openOptions are what a command may ask for beside the location.
type openOptions struct {
	adopt bool          // install beside the tables of another program
	made  bool          // refuse to make a store: a command that looks or repairs finds nothing in a new one
	wait  time.Duration // bound of the opening; 0: openWait
}

// openStore opens the store. Every error but that of a command line is a storeError.
func openStore(ctx context.Context, l location, o openOptions) (store, error) {
	if o.wait <= 0 {
		o.wait = openWait
	}
	if l.postgres {
		return openPostgres(ctx, l, o)
	}
	if l.remote {
		return openRemote(ctx, l, o)
	}
	return openSQLite(ctx, l, o)
}

// openSQLite makes the file and its folders, readable by this user alone, if they are missing.
func openSQLite(ctx context.Context, l location, o openOptions) (store, error) {
	if _, err := os.Stat(l.path); o.made && errors.Is(err, fs.ErrNotExist) {
		return nil, &storeError{fmt.Errorf("there is no store at %s; check --store and TENURE_STORE; tenure run and tenure migrate make one", l.path)}
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil, &storeError{fmt.Errorf("making the folder of %s: %w", l.path, err)}
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: l.path, Adopt: o.adopt})
	if err != nil {
		return nil, &storeError{err}
	}
	return s, nil
}
