package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/lease"
)

// Protect is the function [Protect] in a transaction of its own, which takes its turn among the file's writers. Beside its errors there is one matching
// [lease.ErrUnavailable] if certainly nothing was changed, and one matching [lease.ErrUnknown] if [Store.Protected] has to tell. Safe for concurrent use.
func (s *Store) Protect(ctx context.Context, p Protection) error {
	return s.protecting(ctx, "protect", func(ctx context.Context, tx DBTX) error { return Protect(ctx, tx, p) })
}

// ProtectScript is the function [ProtectScript]. Safe for concurrent use.
func (s *Store) ProtectScript(ctx context.Context, p Protection) (string, error) {
	var script string
	err := s.protecting(ctx, "protect", func(ctx context.Context, tx DBTX) (err error) {
		script, err = ProtectScript(ctx, tx, p)
		return err
	})
	if err != nil {
		return "", err // the writer may still be at work on it: not even read
	}
	return script, nil
}

// Unprotect is the function [Unprotect], as [Store.Protect] is Protect.
func (s *Store) Unprotect(ctx context.Context, table string) (bool, error) {
	var found bool
	err := s.protecting(ctx, "unprotect", func(ctx context.Context, tx DBTX) (err error) {
		found, err = Unprotect(ctx, tx, table)
		return err
	})
	if err != nil {
		return false, err
	}
	return found, nil
}

// Protected is the function [Protected]. Safe for concurrent use.
func (s *Store) Protected(ctx context.Context) ([]Protection, error) {
	var found []Protection
	err := s.protecting(ctx, "list of protections", func(ctx context.Context, tx DBTX) (err error) {
		found, err = Protected(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// protecting runs fn in the writer's transaction, beside the requests of others. It leaves nothing behind when it returns an error.
func (s *Store) protecting(ctx context.Context, op string, fn func(ctx context.Context, tx DBTX) error) error {
	return s.writer.do(ctx, &request{op: op, do: func(b *batch) error {
		err := fn(context.WithoutCancel(ctx), s.conn)
		if err == nil || errors.Is(err, lease.ErrInvalid) {
			return err
		}
		return b.fail(fmt.Errorf("%s: %w", op, err))
	}}, false)
}
