package flakypay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ReadLedger reads a ledger's file, also one that a provider is appending to, or was killed while it did: a last line without its end is none. It returns an error
// matching [ErrFile].
func ReadLedger(r io.Reader) (*Ledger, error) {
	l := newLedger()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		f := new(fact)
		if err := json.Unmarshal(bytes.TrimSpace(line), f); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrFile, n, err)
		}
		if f.Fact == factEffect && f.Number != int64(len(l.effects))+1 {
			return nil, fmt.Errorf("%w: line %d: effect %d after %d", ErrFile, n, f.Number, len(l.effects))
		}
		if f.Means < 0 || f.Means > MeansEffect || f.Delivery < 0 || f.Delivery > Acknowledged {
			return nil, fmt.Errorf("%w: line %d: a meaning or a delivery that is none", ErrFile, n)
		}
		f.at = time.Duration(f.AtMS) * time.Millisecond
		l.now = max(l.now, f.at)
		l.applyLocked(f)
		l.size += int64(len(line))
	}
}

// openLedger goes on from a file, or begins one. What stands after the last whole line is cut off.
func openLedger(name string, synchronise bool) (*Ledger, error) {
	if name == "" {
		return newLedger(), nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	l, err := ReadLedger(file)
	if err == nil {
		err = file.Truncate(l.size)
	}
	if err == nil {
		_, err = file.Seek(l.size, io.SeekStart)
	}
	if err != nil {
		_ = file.Close() // the first error counts
		if errors.Is(err, ErrFile) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	l.file, l.sync = file, synchronise
	return l, nil
}

// appendLocked writes a line in one call, so that a process that is killed leaves it whole or not at all.
func (l *Ledger) appendLocked(f *fact) error {
	if l.broken != nil {
		return l.broken
	}
	if l.file == nil {
		return nil
	}
	line, err := json.Marshal(f)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err == nil && l.sync {
		err = l.file.Sync()
	}
	if err != nil {
		l.broken = fmt.Errorf("%w: %w", ErrFile, err)
	}
	return l.broken
}

// close ends the recording in a file. It returns the error that ended it before, if one did.
func (l *Ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if l.broken != nil {
		return l.broken
	}
	l.broken = fmt.Errorf("%w: the provider has ended", ErrFile)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	return nil
}
