package sqlite

import (
	"context"
	"fmt"
	"os"

	lib "modernc.org/sqlite/lib"
)

func (s *Store) hasLog() bool {
	info, err := os.Stat(s.path + "-wal")
	return err == nil && info.Size() > 0
}

func (s *Store) staleLog() error {
	return &FileError{Path: s.path, Kind: ErrStaleLog, Detail: fmt.Sprintf(
		"%[1]s-wal was written for another file than this one; if only this file was restored from a copy, remove %[1]s-wal and %[1]s-shm; "+
			"if file and log were copied together, remove %[1]s-tenure instead; then start again", s.path)}
}

// maxRecoveryCheck bounds the file that is read through after a crash: it keeps all other openers waiting.
const maxRecoveryCheck = 16 << 20

// checkRecovered looks through a small file whose log was left by a crash. Content that was copied over the file in the
// meantime keeps the file's identity, and the log's pages then stand among those of another time.
func (s *Store) checkRecovered(ctx context.Context) error {
	if !s.recovers {
		return nil
	}
	info, err := os.Stat(s.path)
	if err != nil || info.Size() > maxRecoveryCheck {
		return err
	}
	var found string
	if err := s.conn.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return s.mixed(found)
	}
	return nil
}

func (s *Store) mixed(found string) error {
	return &FileError{Path: s.path, Kind: ErrStaleLog, Detail: fmt.Sprintf(
		"it does not fit together with %[1]s-wal (%[2]s); if content was copied over it, copy the backup again with %[1]s-wal and %[1]s-shm removed", s.path, found)}
}

// notRecovered explains why a file could not be opened: beside a log that a crash left, even the schema may be of two times.
func (s *Store) notRecovered(err error) error {
	if s.recovers && resultCode(err) == lib.SQLITE_CORRUPT {
		return s.mixed(err.Error())
	}
	return err
}
