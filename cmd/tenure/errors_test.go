package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
)

// TestExitCode: each kind of error has one exit code, through wraps too.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{errors.New("other"), 1},
		{usagef("x"), 64},
		{&lease.InvalidError{Field: "x"}, 64},
		{&fence.InvalidError{What: "x"}, 64},
		{&lease.HeldError{}, 75},
		{&lease.WaitEndedError{Err: errors.New("x")}, 75},
		{&storeError{errors.New("x")}, 77},
		{&lease.UnavailableError{Err: errors.New("x")}, 77},
		{&lease.UnknownError{Err: errors.New("x")}, 77},
		{postgres.ErrSetup, 77},
		{&operation.InvalidError{Field: "x"}, 64},
		{&operation.UnavailableError{Err: errors.New("x")}, 77},
		{&operation.UnknownError{Err: errors.New("x")}, 77},
		{&operation.MismatchError{}, 1},
		{&operation.NotFoundError{}, 1},
		{&operation.StateError{Kind: operation.ErrDecided}, 1},
		{&operation.StateError{Kind: operation.ErrUndecided}, 1},
		{&operation.StaleError{}, 1},
		{&lease.MismatchError{}, 1},
		{&lease.EndedError{}, 1},
		{&fence.AheadError{}, 1},
		{&codedError{41}, 41},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.code)
		}
		if c.err == nil {
			continue
		}
		if got := exitCode(fmt.Errorf("wrapped: %w", c.err)); got != c.code {
			t.Errorf("%v, wrapped: exit %d, want %d", c.err, got, c.code)
		}
	}
}
